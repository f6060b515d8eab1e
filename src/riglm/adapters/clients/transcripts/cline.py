"""Cline's transcripts: `sessions/<session>/<session>.messages.json`, those of its agents next to them."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from riglm.adapters.clients.transcripts.codex import outcome_of_output
from riglm.adapters.clients.transcripts.reading import (
    MAX_LINE_LENGTH,
    encode_json,
    end_call,
    take_safely,
    text_of,
    user_message,
)
from riglm.domain.transcripts import (
    Advance,
    CallOutcome,
    TranscriptCall,
    TranscriptEvent,
    TranscriptSource,
    UnreadableLine,  # fmt: skip
)

_ENDING: Final = ".messages.json"
_SEPARATOR: Final = "__"
_ASKED: Final = re.compile(r"<user_input\b[^>]*>(.*?)</user_input>", re.DOTALL)
"""What the user wrote; the client adds notices and files next to it."""


def _read_file(file: Path, advance: Advance) -> Iterator[TranscriptEvent]:
    """Yield the events of a file, which is one JSON value: what is reported as a line is a message."""
    with file.open("rb") as opened:
        text = opened.read(MAX_LINE_LENGTH + 1)
    advance(len(text))
    if len(text) > MAX_LINE_LENGTH:
        yield UnreadableLine(line=0, reason="the file is too long")
    else:
        yield from take_safely(0, text, partial(_session_events, file.name.removesuffix(_ENDING)))


def _session_events(name: str, session: dict[str, Any]) -> Iterator[TranscriptEvent]:
    lane = session.get("sessionId") or name
    if name != lane:
        lane = f"{lane}/{name}"
    pending: dict[str | None, TranscriptCall] = {}
    for number, message in enumerate(session["messages"], 1):
        yield from take_safely(number, encode_json(message), partial(_message_events, lane, pending))


def _message_events(
    lane: str, pending: dict[str | None, TranscriptCall], message: dict[str, Any]
) -> list[TranscriptEvent]:
    content, stamp = message.get("content", ""), message.get("ts", 0.0)
    blocks = [{"text": content}] if isinstance(content, str) else content
    at, found = stamp / 1000, []
    if message.get("role") == "user":
        found += user_message(lane, at, _ASKED.findall(text_of(blocks)))
    for block in blocks:
        match block:
            case {"type": "tool_use", "name": str(name)} if _SEPARATOR in name:
                pending[block.get("id")] = TranscriptCall(
                    lane=lane,
                    identity=f"{block.get('id')}/{stamp:.0f}",
                    name=name,
                    arguments=encode_json(block.get("input")),
                    started=at,
                )
            case {"type": "tool_result"}:
                outcome = CallOutcome.NOT_RUN if block.get("is_error") else outcome_of_output(block.get("content"))
                found += end_call(pending.pop(block.get("tool_use_id"), None), at, outcome)
    return found


CLINE: Final = TranscriptSource(
    client="cline",
    introduces_itself="@cline/core",
    separator=_SEPARATOR,
    pattern=f"*{_ENDING}",
    places=lambda home, _: [home / ".cline" / "data" / "sessions"],
    is_head=lambda head: head == b"{",
    read=_read_file,
)
"""Cline as a program, not as an extension of an editor; each agent is a separate conversation."""
