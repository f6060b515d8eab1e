"""What went wrong, as RFC 9457 has it: every answer that is no success is such a document."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec
from pydantic import BaseModel, Field
from starlette.responses import Response

PROBLEM_TYPE: Final = "application/problem+json"

_TITLES: Final = {421: "Misdirected Request", 422: "Unprocessable Content"}  # as RFC 9110 has them; Python's are older


class Place(BaseModel):
    """One part of a request that is not usable."""

    path: str = Field(description="The part: a parameter, a header, or the path of a key of the body.")
    detail: str = Field(description="What is wrong with it, and the fix.")


class Problem(BaseModel):
    """What went wrong."""

    type: str = Field(description="`about:blank`: the status says which kind of problem it is.")
    title: str = Field(description="The status in words.")
    status: int = Field(ge=400, le=599)
    detail: str = Field(description="What is wrong here, and the fix.")
    errors: list[Place] | None = Field(default=None, description="Each part of the request that is not usable.")


def problem(
    status: int, detail: str, *, errors: Sequence[tuple[str, str]] = (), headers: Mapping[str, str] | None = None
) -> Response:
    """The answer with this status; `errors` are paths with what is wrong there."""
    title = _TITLES.get(status) or HTTPStatus(status).phrase
    document: dict[str, Any] = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    if errors:
        document["errors"] = [{"path": path, "detail": words} for path, words in errors]
    return Response(msgspec.json.encode(document), status, headers, media_type=PROBLEM_TYPE)


def told(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems that an operation may answer with, for its part of the OpenAPI document.

    The problems that can occur before any operation are among them, such as access.
    """
    return {status: _described(status) for status in sorted({401, 403, 421, 422, *statuses})}


def _described(status: int) -> dict[str, Any]:
    described: dict[str, Any] = {"model": Problem, "description": _DESCRIPTIONS[status]}
    if status == 401:
        described["headers"] = {
            "WWW-Authenticate": {"schema": {"type": "string"}, "required": True, "description": "`Bearer`."}
        }
    if status == 503:
        described["headers"] = {
            "Retry-After": {"schema": {"type": "string"}, "required": True, "description": "In seconds."}
        }
    return described


_DESCRIPTIONS: Final = {
    400: "The body is no JSON.",
    401: "A token is missing, or it is not a right one.",
    403: "The token is read-only, the request comes from a page of another origin, or this cannot be changed.",
    404: "What was named is not there.",
    408: "The body did not come in time.",
    409: "It conflicts with the current state.",
    413: "The body is too large.",
    415: "The body is not declared to be JSON.",
    421: "The Host header names another server.",
    422: "A part of the request is not usable; `errors` says which.",
    503: "The answer was not ready in time, or the store is unavailable.",
}
