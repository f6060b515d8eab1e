"""A line of a file of thoughts: `{"text": …, "origin": …, "tags": […], "private": …, "created_at": …}`."""

import math
import unicodedata
from datetime import UTC, datetime
from typing import Any, Final

from riglm.application.json_lines import Row
from riglm.application.knowledge.line_values import texts, visible_text, wrong
from riglm.domain.identifier import uuid7
from riglm.domain.knowledge.pieces import Thought
from riglm.domain.knowledge.provenance import Origin

KEYS: Final = frozenset({"text", "origin", "tags", "private", "is_private", "created_at"})
"""The keys that count; `text` must be there."""

_MILLISECONDS_FROM: Final = 1e11
"""An epoch from here on is in milliseconds: in seconds it would be after the year 5000."""

_EARLIEST: Final = datetime(1, 1, 1, tzinfo=UTC).timestamp()
_LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


def thought_of(row: Row, owner: str, now: float) -> Thought:
    """The thought of a line, an owner's; one that does not say when it was made was made `now`.

    Whatever key has the letters of `private` or `is private`, and no others, counts as that: nothing gets out because
    of a spelling.

    Raises:
        BadLine: the line has no text, or a value that is none of its key.
    """
    return Thought(
        id=uuid7(),
        owner=owner,
        text=visible_text("text", row.get("text")),
        origin=_origin(row.get("origin")),
        created_at=_time(row.get("created_at"), now),
        tags=texts("tags", row.get("tags")),
        is_private=any(_flag(key, row[key]) for key in row if _means_private(key)),
    )


def is_known(key: str) -> bool:
    """Whether a key of a line counts."""
    return key in KEYS or _means_private(key)


def _origin(value: Any) -> Origin:
    if value is None:
        return Origin.HUMAN
    if isinstance(value, str) and value in list(Origin):
        return Origin(value)
    raise wrong("origin", f"one of {', '.join(Origin)}", value, "write one of these, or leave it away")


def _means_private(key: str) -> bool:
    letters = unicodedata.normalize("NFKD", key).casefold()
    return "".join(filter(str.isalnum, letters)) in {"private", "isprivate"}


def _flag(key: str, value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    raise wrong(key, "true or false", value, "write true or false, or leave it away")


def _time(value: Any, now: float) -> float:
    if value is None:
        return now
    seconds = _of_rfc_3339(value) if isinstance(value, str) else _of_epoch(value)
    if seconds is None or not _EARLIEST <= seconds <= _LATEST:
        fix = 'write "2026-01-31T12:00:00Z" or seconds since 1970, or leave it away'
        raise wrong("created_at", "a time in RFC 3339 or a number", value, fix)
    return seconds


def _of_rfc_3339(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(text.strip().upper())
        return moment.timestamp() if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def _of_epoch(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    return None if math.isnan(seconds) else seconds / 1000 if abs(seconds) >= _MILLISECONDS_FROM else seconds
