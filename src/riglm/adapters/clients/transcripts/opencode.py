"""opencode's transcripts: the messages in its database, `opencode.db`."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

from riglm.adapters.clients.transcripts.reading import encode_json, take_safely, user_message
from riglm.domain.transcripts import Advance, CallOutcome, TranscriptCall, TranscriptEvent, TranscriptSource

_NAMES: Final = "opencode*.db"
_SEPARATOR: Final = "_"
_OWN: Final = frozenset({"apply_patch", "plan_enter", "plan_exit"})
"""Tools of opencode with names that look like those of a server's tools."""

_NOT_RUN: Final = (
    "The user rejected permission", "The user has specified a rule", "Tool execution aborted", "MCP error",
)  # fmt: skip
_OUTCOMES: Final = {"completed": CallOutcome.DONE, "error": CallOutcome.FAILED}
_PARTS: Final = """
    SELECT message.session_id, message.time_created, message.data, part.data
    FROM message JOIN part ON part.message_id = message.id
    ORDER BY message.session_id, message.time_created, message.id, part.id
"""


def _places(home: Path, environment: Mapping[str, str]) -> list[Path]:
    folder = Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share") / "opencode"
    return list(folder.glob(_NAMES))  # not the folder, which holds snapshots of all projects


def _read_file(file: Path, advance: Advance) -> Iterator[TranscriptEvent]:
    """Yield the events of a database; what is reported as a line is a row."""
    advance(file.stat().st_size)
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            for number, (lane, created, message, part) in enumerate(database.execute(_PARTS), 1):
                row = f'{{"message": {message}, "part": {part}}}'.encode()
                yield from take_safely(number, row, partial(_row_events, lane, created / 1000))
    except sqlite3.Error as error:
        raise OSError(str(error)) from error


def _row_events(lane: str, at: float, row: dict[str, Any]) -> list[TranscriptEvent]:
    part, role = row["part"], row["message"].get("role")
    match part:
        case {"type": "text"} if role == "user" and not part.get("synthetic"):
            return user_message(lane, at, part)
        case {"tool": str(tool), "state": dict(state)} if _is_mcp(tool) and state.get("status") in _OUTCOMES:
            start, end = state["time"]["start"], state["time"]["end"]
            is_refused = state.get("error", "").startswith(_NOT_RUN)
            return [
                TranscriptCall(
                    lane=lane,
                    identity=f"{part.get('callID')}/{start:.0f}",
                    name=tool,
                    arguments=encode_json(state.get("input")),
                    started=start / 1000,
                    ended=max(start, end) / 1000,
                    outcome=CallOutcome.NOT_RUN if is_refused else _OUTCOMES[state["status"]],
                )
            ]
    return []


def _is_mcp(tool: str) -> bool:
    return _SEPARATOR in tool and tool not in _OWN


OPENCODE: Final = TranscriptSource(
    client="opencode",
    introduces_itself="opencode",
    separator=_SEPARATOR,
    pattern=_NAMES,
    places=_places,
    is_head=lambda head: head.startswith(b"SQLite format 3\0"),
    read=_read_file,
)
"""opencode since it keeps its sessions in SQLite."""
