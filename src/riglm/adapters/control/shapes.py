"""What the parts of the API have in common: how times are written and read, and how lists are asked for."""

import re
from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import Depends, Query, Request
from pydantic import BeforeValidator, WithJsonSchema

from riglm.domain.schemas.control_api import LATEST
from riglm.ports.control import ControlPort

PRINTED: Final = r"^[^\x00-\x1f\x7f-\x9f]+$"
"""The pattern of text without signs for control, which no tool's name has."""

_RFC_3339: Final = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d):(\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_NUMBER: Final = re.compile(r"-?\d{1,20}(\.\d{1,20})?([eE][+-]?\d{1,3})?", re.ASCII)
_HOW: Final = "write it as 2026-01-31T12:00:00Z, or in seconds since the epoch"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DATE_TIME: Final = {"type": "string", "format": "date-time"}


def read(text: str) -> float:
    """A time in seconds since the epoch, from how RFC 3339 writes it, or from such seconds; what was before is 0.

    Raises:
        ValueError: it is neither.
    """
    return _seconds(float(text)) if _NUMBER.fullmatch(text) else _read_date(text)


def _read_member(value: object) -> float:
    if isinstance(value, str):
        return _read_date(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(_HOW)  # noqa: TRY004  # pydantic reports only these
    return _seconds(value)


def _seconds(value: float) -> float:
    if not 0 <= value <= LATEST:
        raise ValueError(f"it must lie between 0 and {LATEST} seconds since the epoch")
    return float(value)


def _read_date(text: str) -> float:
    found = _RFC_3339.fullmatch(text)
    if found is None:
        raise ValueError(_HOW)
    day, minutes, seconds, fraction, zone = found.groups()
    leap = seconds == "60"  # which Python does not know
    whole = f"{day}T{minutes}:{59 if leap else seconds}{(fraction or '')[:7]}{zone.upper()}"
    try:
        at = datetime.fromisoformat(whole)
    except ValueError:
        raise ValueError("there is no such time") from None
    return min(max((at - _EPOCH).total_seconds() + leap, 0.0), float(LATEST))


_MOMENT: Final = WithJsonSchema({"anyOf": [_DATE_TIME, {"type": "number", "minimum": 0, "maximum": LATEST}]})

GivenTime = Annotated[float, BeforeValidator(read), _MOMENT]
"""A time among the parameters: RFC 3339, or seconds since the epoch."""

TimeMember = Annotated[float, BeforeValidator(_read_member), _MOMENT]
"""A time in a body."""


def _read_flag(value: object) -> object:
    if value not in ("true", "false", True, False):
        raise ValueError("write true or false")
    return value in ("true", True)


Flag = Annotated[bool, BeforeValidator(_read_flag)]
"""A yes or no among the parameters."""

Since = Annotated[GivenTime, Query(description="Only what happened since then.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of items.")]
Cursor = Annotated[
    str | None,
    Query(max_length=512, pattern="^[A-Za-z0-9_=.:~-]+$", description="A `next_cursor`, to go on from there."),
]


async def _port(request: Request) -> ControlPort:
    found: ControlPort = request.app.state.port
    return found


Port = Annotated[ControlPort, Depends(_port)]
"""What answers."""
