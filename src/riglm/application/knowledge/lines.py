"""Files of JSON lines of knowledge: thoughts, and the memory of the MCP memory server."""

import codecs
import json
import math
import stat
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

from riglm.domain.errors import UnusableInputError
from riglm.domain.knowledge import Origin, Relation, Thought, is_visible
from riglm.domain.session import uuid7

JsonRow: TypeAlias = Mapping[str, Any]
"""One JSON object of a file."""

MAX: Final = 16 << 20
"""The longest line that is read, in bytes."""


class UnreadableFileError(UnusableInputError):
    """Raised when a file is missing or not readable. The message names the file and the fix."""


class InvalidLineError(ValueError):
    """Raised when a line is invalid. The message contains the reason and the fix, not the location."""


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, by number, the first being 1; of one that is too long the beginning.

    Raises:
        UnreadableFileError: it is no file, or cannot be read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            raise UnreadableFileError(f"{path}: this is no file — fix: put a file of JSON lines there")
        with path.open("rb") as file:
            number = 0
            while line := file.readline(MAX + 1):
                number += 1
                rest = line
                while len(rest) > MAX and not rest.endswith(b"\n"):
                    rest = file.readline(MAX + 1)
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                if line.strip():
                    yield number, line
    except OSError as error:
        raise UnreadableFileError(f"{path}: {error.strerror} — fix: put a file there that you may read") from error


def decoded(line: bytes) -> str:
    """A line as text.

    Raises:
        InvalidLineError: it is too long, or not UTF-8.
    """
    if len(line) > MAX:
        raise InvalidLineError(f"the line is longer than {MAX >> 20} MiB — fix: one JSON object on each line")
    try:
        return line.decode().rstrip()
    except UnicodeDecodeError as error:
        raise InvalidLineError(f"byte {error.start + 1} is not UTF-8 — fix: save the file in UTF-8") from error


def object_of(line: bytes) -> JsonRow:
    """The JSON object that a line is.

    Raises:
        InvalidLineError: it is none.
    """
    text = decoded(line)
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        reason = f"this is not JSON (column {error.colno}: {error.msg})"
    except RecursionError:
        reason = "the values are nested too deeply"
    except ValueError:
        reason = "a number has too many digits"
    else:
        if isinstance(value, dict):
            return value
        reason = f"this is not a JSON object but {_kind(value)}"  # which may be private
    raise InvalidLineError(f"{reason} — fix: one JSON object on each line")


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case _:
            return "a list"


def visible_text(key: str, value: Any) -> str:
    """A text in which something can be seen.

    Raises:
        InvalidLineError: it is something else.
    """
    if isinstance(value, str) and is_visible(value):
        return value
    raise wrong(key, "a text that can be seen", value, f'write "{key}": "..."')


def texts(key: str, value: Any) -> tuple[str, ...]:
    """A list of texts, each once; none when there is no list.

    Raises:
        InvalidLineError: it is something else.
    """
    if value is None:
        return ()
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        return tuple(dict.fromkeys(value))
    raise wrong(key, "a list of texts", value, f'write "{key}": ["...", ...] or remove it')


def wrong(key: str, expected: str, value: Any, fix: str) -> InvalidLineError:
    """The error for a value that is not what it must be."""
    return InvalidLineError(f"{key!r} must be {expected}, {_found(value)} — fix: {fix}")


def _found(value: Any) -> str:
    match value:
        case None:
            return "and is missing"
        case bool():
            return "not true or false"
        case int() | float():
            return "not this number"
        case str():
            return "not this text"
        case list():
            return "not this list"
        case _:
            return "not an object"


ENTITY: Final = "entity"
RELATION: Final = "relation"
_KEYS: Final = {
    ENTITY: frozenset({"type", "name", "entityType", "observations"}),
    RELATION: frozenset({"type", "from", "to", "relationType"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """An entity as a line describes it; its relations are on other lines. The kind may be empty."""

    name: str
    kind: str
    observations: tuple[str, ...]


def memory_of(row: JsonRow, owner: str) -> Described | Relation:
    """Return the record that a line describes. Observations without visible characters are skipped.

    Raises:
        InvalidLineError: it is neither an entity nor a relation, or a value is none of its key.
    """
    kind = row.get("type")
    if kind == ENTITY:
        return _entity(row)
    if kind == RELATION:
        source, target, relation = (visible_text(key, row.get(key)) for key in ("from", "to", "relationType"))
        return Relation(owner=owner, source=source, target=target, kind=relation)
    fix = "remove the line, or give --format thoughts if these are thoughts"
    raise wrong("type", f"{ENTITY} or {RELATION}", kind, fix)


def is_memory_line_key(row: JsonRow, key: str) -> bool:
    """Whether a key of a line that was read counts."""
    return key in _KEYS[row["type"]]


def _entity(row: JsonRow) -> Described:
    kind = row.get("entityType") or ""
    if not isinstance(kind, str):
        raise wrong("entityType", "a text", kind, 'write "entityType": "..." or remove it')
    observations = texts("observations", row.get("observations"))
    return Described(
        name=visible_text("name", row.get("name")),
        kind=kind.strip(),
        observations=tuple(text for text in observations if is_visible(text)),
    )


KEYS: Final = frozenset({"text", "origin", "tags", "private", "is_private", "created_at"})
"""The keys that count; `text` must be there."""

_MILLISECONDS_FROM: Final = 1e11
"""An epoch from here on is in milliseconds: in seconds it would be after the year 5000."""

_EARLIEST: Final = datetime(1, 1, 1, tzinfo=UTC).timestamp()
_LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


def thought_of(row: JsonRow, owner: str, now: float) -> Thought:
    """The thought of a line, an owner's; one that does not say when it was made was made `now`.

    Any key with the letters of `private` or `is private`, and no others, counts as that, so that no spelling makes a
    private record public.

    Raises:
        InvalidLineError: the line has no text, or a value that is none of its key.
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


def is_thought_line_key(key: str) -> bool:
    """Whether a key of a line counts."""
    return key in KEYS or _means_private(key)


def _origin(value: Any) -> Origin:
    if value is None:
        return Origin.HUMAN
    if isinstance(value, str) and value in list(Origin):
        return Origin(value)
    raise wrong("origin", f"one of {', '.join(Origin)}", value, "write one of these, or remove it")


def _means_private(key: str) -> bool:
    letters = unicodedata.normalize("NFKD", key).casefold()
    return "".join(filter(str.isalnum, letters)) in {"private", "isprivate"}


def _flag(key: str, value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    raise wrong(key, "true or false", value, "write true or false, or remove it")


def _time(value: Any, now: float) -> float:
    if value is None:
        return now
    seconds = _of_rfc_3339(value) if isinstance(value, str) else _of_epoch(value)
    if seconds is None or not _EARLIEST <= seconds <= _LATEST:
        fix = 'write "2026-01-31T12:00:00Z" or seconds since 1970, or remove it'
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
