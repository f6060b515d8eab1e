"""Spans of time, moments and counts as people write them."""

import re
from datetime import UTC, datetime
from typing import Final

_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])", re.ASCII | re.IGNORECASE)
_MAX: Final = 36_500 * 86_400.0


def parsed_duration(text: str) -> float:
    """The seconds of a span such as `90s`, `15m`, `12h`, `30d` or `2w`.

    Raises `ValueError` for anything else, for nothing at all and for more than a hundred years.
    """
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found[1]) * _SECONDS[found[2].lower()] if found else 0.0
    if not 0 < seconds <= _MAX:
        raise ValueError(
            f"{text!r} is no span of time — fix: write a number and s, m, h, d or w (weeks), for example 30d"
        )
    return seconds


def parsed_moment(text: str, now: float) -> float:
    """Return the time, in seconds since the epoch, of a date (and time, UTC by default) or of a span before `now`.

    Raises `ValueError` for anything else.
    """
    try:
        return now - parsed_duration(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(
            f"{text!r} is neither a date nor a span of time — fix: write 2026-01-31, 2026-01-31T12:00 or, for the "
            "last 30 days, 30d"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


_EARLIEST: Final = datetime(1, 1, 3, tzinfo=UTC).timestamp()
_LATEST: Final = datetime(9999, 12, 29, tzinfo=UTC).timestamp()  # so that every time zone has the day


def to_utc_datetime(seconds: float) -> datetime:
    """Return a time, in seconds since the epoch, in UTC, or the nearest one that every time zone can represent."""
    return datetime.fromtimestamp(min(_LATEST, max(_EARLIEST, seconds)), UTC)


def format_count(count: int, noun: str) -> str:
    """Return a count with its noun: "1 session", "1,200 sessions"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
