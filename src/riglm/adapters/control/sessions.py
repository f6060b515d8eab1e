"""Sessions, and what the next list of one would be."""

from typing import Annotated, Final
from uuid import UUID

from fastapi import Path, Query

from riglm.adapters.control.request import told
from riglm.adapters.control.route import operations
from riglm.adapters.control.shapes import Cursor, Flag, Limit, Port
from riglm.domain.schemas.control_api import Page, SessionDetail, SessionEntry, SessionPrediction

router: Final = operations("sessions")

SessionId = Annotated[UUID, Path(description="The id of a session.")]


@router.get("/sessions", summary="All sessions", responses=told(404, 503), response_model=Page[SessionEntry])
async def sessions(
    port: Port,
    *,
    active: Annotated[Flag, Query(description="Only those that may still grow.")] = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> object:
    """Newest first. Following the cursors misses no session and returns none twice."""
    return await port.sessions(active_only=active, limit=limit, cursor=cursor)


@router.get("/sessions/{session_id}", summary="One session", responses=told(404, 503), response_model=SessionDetail)
async def session(port: Port, session_id: SessionId) -> object:
    """With its latest calls and lists."""
    return await port.session(session_id)


@router.get(
    "/predictions/{session_id}",
    summary="A session's next list",
    responses=told(404, 503),
    response_model=SessionPrediction,
)
async def prediction(port: Port, session_id: SessionId) -> object:
    """Every tool with its rank, its score by signal, and why it is shown or not. Asking changes nothing."""
    return await port.prediction(session_id)
