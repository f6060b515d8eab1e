"""Times as calendars have them."""

from datetime import UTC, datetime
from typing import Final

_EARLIEST: Final = datetime(1, 1, 3, tzinfo=UTC).timestamp()
_LATEST: Final = datetime(9999, 12, 29, tzinfo=UTC).timestamp()  # so that every time zone has the day


def told_moment(seconds: float) -> datetime:
    """Return a time, in seconds since the epoch, in UTC, or the nearest one that every time zone can represent."""
    return datetime.fromtimestamp(min(_LATEST, max(_EARLIEST, seconds)), UTC)
