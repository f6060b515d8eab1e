"""Whose records are removed on request, and not taken any more."""

from dataclasses import dataclass
from enum import StrEnum


class Whose(StrEnum):
    """What distinguishes the records to erase from all others."""

    SESSION = "session"
    CLIENT = "client"
    PRINCIPAL = "principal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """A subject to erase, at a time in seconds since the epoch.

    `key` is the id of a session; the keyed hash of a client, or of the name that clients gave themselves; or the keyed
    hash of a principal, empty for callers without a name. A client and a principal may come back: their sessions that
    start later are recorded. A session that was forgotten stays so.
    """

    whose: Whose
    key: str
    at: float
