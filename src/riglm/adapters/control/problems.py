"""Error responses of the control API: problem documents (RFC 9457), and their descriptions for OpenAPI."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from pydantic import BaseModel, Field
from starlette.responses import Response

PROBLEM_TYPE: Final = "application/problem+json"


class FieldErrorModel(BaseModel):
    """One invalid part of a request."""

    path: str = Field(description="The part: a parameter, a header, or the path of a key of the body.")
    detail: str = Field(description="What is wrong with it, and the fix.")


class ProblemDetails(BaseModel):
    """An error."""

    type: str = Field(default="about:blank", description="`about:blank`: see `status`.")
    title: str = Field(description="The status in words.")
    status: int = Field(ge=400, le=599)
    detail: str = Field(description="What is wrong, and the fix.")
    errors: list[FieldErrorModel] | None = Field(default=None, description="Each invalid part of the request.")


def create_problem(
    status: int, detail: str, *, errors: Sequence[tuple[str, str]] = (), headers: Mapping[str, str] | None = None
) -> Response:
    """Return the response with this status; `errors` are paths with what is wrong there."""
    parts = [FieldErrorModel(path=path, detail=text) for path, text in errors]
    title = _TITLES.get(status) or HTTPStatus(status).phrase
    document = ProblemDetails(title=title, status=status, detail=detail, errors=parts or None)
    return Response(document.model_dump_json(exclude_none=True), status, headers, media_type=PROBLEM_TYPE)


def describe_problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the descriptions of problems with these statuses for the OpenAPI document."""
    found: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        found[status] = {"model": ProblemDetails, "description": _DESCRIPTIONS[status]}
        if status in _HEADERS:
            name, description = _HEADERS[status]
            header = {"schema": {"type": "string"}, "required": True, "description": description}
            found[status]["headers"] = {name: header}
    return found


_TITLES: Final = {421: "Misdirected Request", 422: "Unprocessable Content"}  # as RFC 9110 has them; Python's are older
_HEADERS: Final = {401: ("WWW-Authenticate", "`Bearer`."), 503: ("Retry-After", "In seconds.")}
_DESCRIPTIONS: Final = {
    400: "The body is no JSON.",
    401: "A token is missing, or it is not a right one.",
    403: "The token is read-only, the request comes from a page of another origin, or this cannot be changed.",
    404: "What was named is not there.",
    408: "The body did not come in time.",
    409: "It conflicts with the current state.",
    412: "If-Match names no version of this configuration.",
    413: "The body is too large.",
    415: "The body is not declared to be JSON.",
    421: "The Host header names another server.",
    422: "A part of the request is not usable; `errors` says which.",
    503: "The answer was not ready in time, or the store is unavailable.",
}
