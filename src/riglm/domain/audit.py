"""Audit records: one JSON line per decision, each linked to the line before it by a hash."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final

FIRST: Final = "0" * 64
"""The hash before the first line."""


class AuditEvent(StrEnum):
    """What an audit record is about."""

    SESSION_OPENED = "session_opened"
    TOOL_CALLED = "tool_called"
    TOOL_REFUSED = "tool_refused"
    TOOL_CHANGED = "tool_changed"
    TOOL_APPROVED = "tool_approved"
    OVERRIDE_CREATED = "override_created"
    OVERRIDE_DELETED = "override_deleted"
    CONFIGURATION_CHANGED = "configuration_changed"


AuditLog = Callable[[AuditEvent, Mapping[str, Any]], None]
"""Records an event with what is known of it; it neither blocks nor raises."""


def chained(fields: Mapping[str, Any], previous: str) -> tuple[str, str]:
    """Return the line of an audit record, without its end, and its hash.

    The line is JSON in ASCII, whose members `previous` and `hash` come last. The hash is the SHA-256, in hexadecimal,
    of the same line without `hash`.
    """
    body = json.dumps({**fields, "previous": previous}, separators=(",", ":"))
    digest = sha256(body.encode()).hexdigest()
    return f'{body[:-1]},"hash":"{digest}"}}', digest


def hash_of(line: str) -> str | None:
    """Return the hash of a line, None if the line was changed or is incomplete."""
    body, mark, ending = line.rpartition(',"hash":"')
    digest = sha256((body + "}").encode()).hexdigest()
    return digest if mark and ending == f'{digest}"}}' else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCheck:
    """The result of a check: the number of lines, the hash of the last one, and what is wrong, by line number.

    `cut` are the lines among `faults` that a writer left incomplete when it ended. They hide no record.
    """

    lines: int
    last: str
    faults: tuple[tuple[int, str], ...]
    cut: tuple[int, ...] = ()

    @property
    def is_intact(self) -> bool:
        """True if no record was changed, removed or added."""
        return len(self.cut) == len(self.faults)


def verify(lines: Iterable[str], previous: str | None = None) -> AuditCheck:
    """Check that no line of an audit log was changed, removed from between others, or added.

    `previous` is the hash of the line before the first one; without it, the first line may follow any line, so that
    lines removed at the beginning are not noticed. Neither are those removed at the end: compare the last hash with one
    that was kept elsewhere.
    """
    faults: list[tuple[int, str]] = []
    cut: list[int] = []
    count, last = 0, previous or FIRST
    for count, line in enumerate(lines, 1):
        digest, link = hash_of(line), _link_of(line)
        if digest is None and not line.endswith("}"):
            # The next line has to follow the one before this: what was a record cannot be cut unnoticed.
            faults.append((count, "this line was cut off while it was written"))
            cut.append(count)
            continue
        if digest is None or link is None:
            faults.append((count, "this line was changed, or is incomplete"))
            previous = None
            continue
        if previous is not None and link != previous:
            faults.append((count, "this line does not follow the one before it: lines were removed or added"))
        last = previous = digest
    return AuditCheck(lines=count, last=last, faults=tuple(faults), cut=tuple(cut))


def _link_of(line: str) -> str | None:
    """Return the hash that a line names as that of the line before it, None if it is no audit record."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    link = record.get("previous") if isinstance(record, dict) else None
    return link if isinstance(link, str) else None
