"""Overrides: manual decisions about tools, regardless of predictions."""

from typing import Annotated, Any, Final, Literal
from uuid import UUID

from fastapi import Body, Path, Response
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from riglm.adapters.control.request import told
from riglm.adapters.control.route import operations
from riglm.adapters.control.shapes import PRINTED, Cursor, Limit, Port, TimeMember
from riglm.domain.control import OverrideRequest
from riglm.domain.policy import OverrideKind, OverrideScope
from riglm.domain.schemas.control_api import OverrideEntry, Page

router: Final = operations("overrides")

_YEAR: Final = 31_536_000

OverrideId = Annotated[UUID, Path(description="The id of an override.")]


class _OverrideCreate(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    kind: Annotated[OverrideKind, Field(strict=False)] = Field(
        description="`include` shows the tool and lifts a denial, unless it is for one session; `exclude` hides it; "
        "`pin` keeps it in every list, at its place in the catalogue's order, and lifts nothing."
    )
    tool: str = Field(min_length=1, max_length=256, pattern=PRINTED, description="As clients see it.")
    expires_at: TimeMember | None = Field(default=None, description="When it ends; null: when it is deleted.")
    expires_in: float | None = Field(
        default=None, gt=0, le=_YEAR, description="Seconds until it ends. Of both ends the earlier counts."
    )
    reason: str = Field(default="", max_length=500, pattern=r"^[^\x00]*$", description="For people.")


class GlobalOverrideCreate(_OverrideCreate):
    """An override for all sessions."""

    scope: Literal["all"] = "all"
    key: Literal[""] = ""


class SessionOverrideCreate(_OverrideCreate):
    """An override for one session."""

    scope: Literal["session"]
    key: Annotated[UUID, Field(strict=False)] = Field(description="The id of a session.")


class PrincipalOverrideCreate(_OverrideCreate):
    """An override for all sessions of one caller."""

    scope: Literal["principal"]
    key: str = Field(
        pattern=r"^[0-9a-f]{0,64}$",
        description="The keyed hash of the caller, as sessions have it; empty for callers without a name.",
    )


def _scope(given: Any) -> str | None:
    scope = given.get("scope", "all") if isinstance(given, dict) else getattr(given, "scope", None)
    return scope if isinstance(scope, str) else None


OverrideCreate = Annotated[
    Annotated[GlobalOverrideCreate, Tag("all")]
    | Annotated[SessionOverrideCreate, Tag("session")]
    | Annotated[PrincipalOverrideCreate, Tag("principal")],
    Discriminator(_scope),
    Body(),
]
"""A requested override; the meaning of `key` depends on the scope."""

SHAPES_OF_WISHES: Final = frozenset(str(scope) for scope in OverrideScope)
"""What a fault in a wish begins with before its place: which shape it was taken for. No member is called so."""


@router.post(
    "/override",
    summary="Make an override",
    status_code=201,
    responses={
        **told(400, 404, 408, 409, 413, 415, 503),
        201: {
            "description": "It is in force: the next list follows it, and clients are notified.",
            "headers": {"Location": {"schema": {"type": "string"}, "required": True, "description": "Its path."}},
        },
    },
    response_model=OverrideEntry,
)
async def put_override(port: Port, override_request: OverrideCreate, response: Response) -> object:
    """Show, hide or pin one tool, for all sessions, for one session, or for one caller."""
    made = await port.put_override(
        OverrideRequest(
            kind=override_request.kind,
            tool=override_request.tool,
            scope=OverrideScope(override_request.scope),
            key=str(override_request.key),
            expires_at=override_request.expires_at,
            expires_in=override_request.expires_in,
            reason=override_request.reason,
        )
    )
    response.headers["Location"] = f"/override/{made.id}"
    return made


@router.get("/override", summary="All overrides", responses=told(404, 503), response_model=Page[OverrideEntry])
async def overrides(port: Port, limit: Limit = 100, cursor: Cursor = None) -> object:
    """Those that have not expired, the latest first."""
    return await port.overrides(limit=limit, cursor=cursor)


@router.get("/override/{override_id}", summary="One override", responses=told(404, 503), response_model=OverrideEntry)
async def override(port: Port, override_id: OverrideId) -> object:
    """One override."""
    return await port.override(override_id)


@router.delete(
    "/override/{override_id}",
    summary="Remove an override",
    status_code=204,
    responses={**told(404, 503), 204: {"description": "It counts no longer."}},
    response_class=Response,
)
async def delete_override(port: Port, override_id: OverrideId) -> Response:
    """What it wanted counts no longer when this is answered."""
    await port.delete_override(override_id)
    return Response(status_code=204)
