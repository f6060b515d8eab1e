"""Sessions, and what the next list of one would be."""

from typing import Annotated, Final, Literal
from uuid import UUID

from fastapi import Path, Query
from pydantic import BeforeValidator, Field

from riglm.adapters.control.request import told
from riglm.adapters.control.route import operations
from riglm.adapters.control.shapes import Cursor, Flag, Limit, NextCursor, Port, Shape, Time, flat
from riglm.domain.control import MOST_CALLS_TOLD, MOST_LISTS_TOLD
from riglm.domain.exposure import Mode
from riglm.domain.invocation import ErrorKind, Found
from riglm.domain.session import Confidence, Era, Method, Transport

router: Final = operations("sessions")

SessionId = Annotated[UUID, Path(description="The id of a session.")]


class Client(Shape):
    """The client's name and version as it sent them."""

    name: str
    version: str


class Session(Shape):
    """One piece of work by one client."""

    id: UUID
    client: Client
    era: Era
    transport: Transport
    method: Method = Field(description="By what it was recognised.")
    confidence: Confidence
    principal: str = Field(description="A keyed hash of who is calling; empty for callers without a name.")
    started_at: Time
    ended_at: Time | None
    active: bool = Field(description="Whether it may still grow.")
    invocations: int = Field(description="All calls, those of meta-tools too, which the summary leaves out.")
    failures: int = Field(description="Of all those calls.")
    lists: int
    list_changes: int
    searches: int
    tools_available: int


class SessionPage(Shape):
    """A part of all sessions, the newest first."""

    items: list[Session]
    next_cursor: NextCursor


class Call(Shape):
    """One call."""

    sequence: int
    tool: str
    upstream: str
    at: Time
    duration_ms: float
    success: bool
    error_kind: ErrorKind | None
    found: Found = Field(description="How the client came to know the tool.")


class ShownList(Shape):
    """One list, or one answer to a search or a context."""

    at: Time = Field(validation_alias="timestamp")
    surface: str
    mode: Mode
    predictor: str
    reason: str
    shown: list[str]
    hidden: Annotated[int, BeforeValidator(len)]
    tokens_shown: int
    tokens_hidden: int
    tokens_own: int


class SessionDetail(Session):
    """A session with its latest calls and lists, each the oldest first."""

    calls: list[Call] = Field(description=f"The latest {MOST_CALLS_TOLD}.")
    shown: list[ShownList] = Field(description=f"The latest {MOST_LISTS_TOLD}.")


class PredictedTool(Shape):
    """What becomes of one tool in the list, and why."""

    tool: str
    upstream: str
    rank: int | None = Field(description="From 1 on, among the tools that can be shown; null for the others.")
    score: float | None = Field(description="Null where nothing was predicted.")
    shown: bool = Field(description="Whether it is in the list; in the mode `shadow`, whether it would be.")
    standing: Literal["open", "kept", "away", "denied"]
    why: str
    contributions: dict[str, float] = Field(description="By signal; they add up to the score.")


class ListWithout(Shape):
    """The list that would be chosen now if one signal were silent, and how it differs from one chosen now with it.

    What a session's list holds because it was chosen or used before in the same context is not in it. A list that
    prediction does not choose is the same without any signal.
    """

    shown: list[str]
    added: list[str]
    removed: list[str]


class Prediction(Shape):
    """What a session's next list would be, and why."""

    session_id: UUID
    at: Time
    live: bool = Field(description="False if the session's state was rebuilt from records.")
    predictor: str
    surface: str
    mode: Mode = Field(
        description="In the mode `shadow` the client sees every tool, and `size`, `shown`, `without` and what is said "
        "of each tool describe what it would get if filtering were enforced."
    )
    confidence: float = Field(ge=0, le=1)
    reason: str
    has_context: bool
    context_confidence: float = Field(ge=0, le=1)
    size: int = Field(description="How many tools are shown.")
    signals: list[str]
    tools: list[PredictedTool]
    shown: list[str] = Field(description="The tools in the list; in the mode `shadow`, those that would be in it.")
    without: dict[str, ListWithout] = Field(
        description="By signal: the list that would be chosen now, if that signal said nothing."
    )


@router.get("/sessions", summary="All sessions", responses=told(404, 503), response_model=SessionPage)
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
    found = await port.session(session_id)
    return flat(found.session, calls=found.calls, shown=found.shown)


@router.get(
    "/predictions/{session_id}", summary="A session's next list", responses=told(404, 503), response_model=Prediction
)
async def prediction(port: Port, session_id: SessionId) -> object:
    """Every tool with its rank, its score by signal, and why it is shown or not. Asking changes nothing."""
    return await port.prediction(session_id)
