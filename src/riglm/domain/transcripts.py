"""Transcripts that clients leave on disk: what they contain, and how much of it was taken."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from riglm.domain.session_cost import RequestTokens


class CallOutcome(StrEnum):
    """The outcome of a call in a transcript."""

    DONE = "done"
    FAILED = "failed"  # the tool ran, and its result is an error
    NOT_RUN = "not run"  # the user or the client refused it, there is no such tool, or its server did not answer


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """A user message in the conversation `lane`; `at` in seconds since the epoch."""

    lane: str
    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptCall:
    """A call of an MCP tool that has ended, in the conversation `lane`.

    `identity` is equal for all copies of the call and unique among the calls of this client. `name` is the tool as the
    client names it; `server` its server if the client gives it separately. `arguments` is JSON. Times are in seconds
    since the epoch; `ended` and `outcome` are set when the end is read. If `is_copy`, the call was made in another file
    and at another time. `directory` is where the client was started, empty if unknown.
    """

    lane: str
    identity: str
    name: str
    server: str | None = None
    arguments: bytes
    started: float
    ended: float = 0.0
    outcome: CallOutcome = CallOutcome.NOT_RUN
    is_copy: bool = False
    directory: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptRequest:
    """A model request in the conversation `lane`, `at` in seconds since the epoch.

    `identity` is equal for all copies of the request and unique among the requests of this client. Of copies in one
    conversation the one with the most output counts: clients also write requests whose response is incomplete.
    """

    lane: str
    identity: str
    at: float
    tokens: RequestTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableLine:
    """A line, counted from 1, that cannot be read, and why."""

    line: int
    reason: str


TranscriptEvent = UserMessage | TranscriptCall | TranscriptRequest | UnreadableLine
Advance = Callable[[int], None]
"""Called with the number of bytes read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptSource:
    """The transcripts of one client: where they are, and how they are read.

    `client` is what riglm's commands call it, `introduces_itself` what it calls itself to servers. `separator` is
    between server and tool in tool names, if the client does not give the server separately. `pattern` is that of file
    names; `places` are the files and folders where the client leaves them, by the home directory and the environment.
    `is_head` is True for the first line of such a file. `read` yields the events of a file in the order written; it
    raises `OSError` for one that cannot be read.
    """

    client: str
    introduces_itself: str
    separator: str
    pattern: str
    places: Callable[[Path, Mapping[str, str]], Iterable[Path]]
    is_head: Callable[[bytes], bool]
    read: Callable[[Path, Advance], Iterator[TranscriptEvent]]


REASONS: Final = (
    "read", "new", "known", "recorded_live", "copied", "not_run", "too_old", "expired", "future", "forgotten",
    "meta_tools",
)  # fmt: skip
"""Each call that is read is `new`, or left out for a reason.

It is known from an earlier import, riglm recorded it itself, it is a copy in a resumed conversation, it did not run, it
is older than was asked for or than the store keeps, its time is still to come, its client or principal was erased, it
is one of a meta-tool, or of a server that is not behind riglm.
"""


@dataclass(slots=True, kw_only=True)
class ImportSummary:
    """Counts of what was found in the transcripts of one client.

    `calls` are by reason, and those `elsewhere`, of servers that are not behind riglm, by server. Names are guessed
    where no riglm has servers yet. `sessions` have new calls, and `billed_sessions` the token counts of `requests`
    model requests. `damaged` lines and `unreadable` files were skipped.
    """

    client: str
    are_names_guessed: bool = False
    files: int = 0
    size: int = 0
    sessions: int = 0
    billed_sessions: int = 0
    requests: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    elsewhere: Counter[str] = field(default_factory=Counter)
    tools: set[str] = field(default_factory=set)
    servers: set[str] = field(default_factory=set)
    damaged: list[tuple[str, int, str]] = field(default_factory=list)
    damaged_lines: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)
