"""opencode's transcripts: the messages in its database, `opencode.db`."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from riglm.adapters.clients.transcripts.lines import decoded, found_below, head
from riglm.ports.clients import (
    CallOutcome,
    TranscriptCall,
    TranscriptEvent,
    TranscriptsPort,
    UnreadableLine,
    UserMessage,
)

_NAMES: Final = "opencode*.db"
_SEPARATOR: Final = "_"
_OWN: Final = frozenset({"apply_patch", "plan_enter", "plan_exit"})
"""Tools of opencode with names that look like those of a server's tools."""

_NOT_RUN: Final = (
    "The user rejected permission",
    "The user has specified a rule",
    "Tool execution aborted",
    "MCP error",
)
_PARTS: Final = """
    SELECT message.session_id, message.time_created, message.data, part.data
    FROM message JOIN part ON part.message_id = message.id
    ORDER BY message.session_id, message.time_created, message.id, part.id
"""


class _Message(msgspec.Struct):
    role: str = ""


class _Time(msgspec.Struct, frozen=True):
    start: float = 0.0
    end: float = 0.0


class _State(msgspec.Struct):
    status: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    error: str = ""
    time: _Time = _Time()


class _Part(msgspec.Struct, rename={"call_id": "callID"}):
    type: str = ""
    text: str = ""
    synthetic: bool | None = None
    tool: str = ""
    call_id: str = ""
    state: _State | None = None


_read_message: Final = msgspec.json.Decoder(_Message).decode
_read_part: Final = msgspec.json.Decoder(_Part).decode


class OpencodeTranscripts(TranscriptsPort):
    """Reads what opencode writes since it keeps its sessions in SQLite; what is reported as a line is a row."""

    client = "opencode"
    introduces_itself = "opencode"
    separator = _SEPARATOR

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        """`home` is the user's; `environment` may name another place in XDG_DATA_HOME."""
        self._folder = Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share") / "opencode"

    def files(self, place: Path | None = None) -> list[Path]:
        return found_below(place, _NAMES) if place else sorted(filter(Path.is_file, self._folder.glob(_NAMES)))

    def wrote(self, file: Path) -> bool:
        return head(file).startswith(b"SQLite format 3\0")

    def read(self, file: Path, advance: Callable[[int], None]) -> Iterator[TranscriptEvent]:
        advance(file.stat().st_size)
        try:
            with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
                for number, (lane, created, message, part) in enumerate(database.execute(_PARTS), 1):
                    try:
                        role = decoded(_read_message, message.encode()).role
                        yield from _happenings(lane, created / 1000, role, decoded(_read_part, part.encode()))
                    except (msgspec.MsgspecError, RecursionError) as error:
                        yield UnreadableLine(line=number, reason=str(error))
        except sqlite3.Error as error:
            raise OSError(str(error)) from error


def _happenings(lane: str, at: float, role: str, part: _Part) -> Iterator[TranscriptEvent]:
    if part.type == "text" and role == "user" and not part.synthetic and part.text.strip():
        yield UserMessage(lane=lane, at=at, text=part.text.strip())
    state = part.state
    if state is None or state.status not in {"completed", "error"} or _SEPARATOR not in part.tool or part.tool in _OWN:
        return
    ending = CallOutcome.DONE
    if state.status == "error":
        ending = CallOutcome.NOT_RUN if state.error.startswith(_NOT_RUN) else CallOutcome.FAILED
    yield TranscriptCall(
        lane=lane,
        identity=f"{part.call_id}/{state.time.start:.0f}",
        name=part.tool,
        arguments=bytes(state.input),
        started=state.time.start / 1000,
        ended=max(state.time.start, state.time.end) / 1000,
        ending=ending,
    )
