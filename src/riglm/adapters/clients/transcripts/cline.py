"""Cline's transcripts: `sessions/<session>/<session>.messages.json`, those of its agents next to them."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from riglm.adapters.clients.transcripts.codex import by_output
from riglm.adapters.clients.transcripts.lines import MAX_LINE_LENGTH, decoded, finished, found_below, head, text_of
from riglm.ports.clients import (
    CallOutcome,
    TranscriptCall,
    TranscriptEvent,
    TranscriptsPort,
    UnreadableLine,
    UserMessage,
)

_ENDING: Final = ".messages.json"
_SEPARATOR: Final = "__"
_ASKED: Final = re.compile(r"<user_input\b[^>]*>(.*?)</user_input>", re.DOTALL)
"""What the user wrote; the client adds notices and files next to it."""


class _Block(msgspec.Struct):
    type: str = ""
    text: Any = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw(b"{}")
    tool_use_id: str | None = None
    content: Any = None
    is_error: bool | None = None


class _Message(msgspec.Struct):
    role: str = ""
    content: str | list[_Block] = ""
    ts: float = 0.0


class _Session(msgspec.Struct):
    messages: list[msgspec.Raw]
    session_id: str = msgspec.field(default="", name="sessionId")


_read: Final = msgspec.json.Decoder(_Session).decode
_read_message: Final = msgspec.json.Decoder(_Message).decode


class ClineTranscripts(TranscriptsPort):
    """Reads what Cline writes as a program, not as an extension of an editor; each agent is a separate conversation.

    A file is one JSON value: what is reported as a line is a message.
    """

    client = "cline"
    introduces_itself = "@cline/core"
    separator = _SEPARATOR

    def __init__(self, home: Path, _: Mapping[str, str]) -> None:
        """`home` is the user's."""
        self._folder = home / ".cline" / "data" / "sessions"

    def files(self, place: Path | None = None) -> list[Path]:
        return found_below(place or self._folder, f"*{_ENDING}")

    def wrote(self, file: Path) -> bool:
        return head(file) == b"{"

    def read(self, file: Path, advance: Callable[[int], None]) -> Iterator[TranscriptEvent]:
        with file.open("rb") as opened:
            text, name = opened.read(MAX_LINE_LENGTH + 1), file.name.removesuffix(_ENDING)
        advance(len(text))
        if len(text) > MAX_LINE_LENGTH:
            yield UnreadableLine(line=0, reason="the file is too long")
            return
        try:
            session = decoded(_read, text)
        except (msgspec.MsgspecError, RecursionError) as error:
            yield UnreadableLine(line=0, reason=str(error))
            return
        lane = session.session_id or name
        if name != lane:
            lane = f"{lane}/{name}"
        pending: dict[str | None, TranscriptCall] = {}
        for number, message in enumerate(session.messages, 1):
            try:
                yield from _happenings(decoded(_read_message, bytes(message)), lane, pending)
            except (msgspec.MsgspecError, RecursionError) as error:
                yield UnreadableLine(line=number, reason=str(error))


def _happenings(message: _Message, lane: str, pending: dict[str | None, TranscriptCall]) -> Iterator[TranscriptEvent]:
    blocks = [_Block(text=message.content)] if isinstance(message.content, str) else message.content
    at = message.ts / 1000
    said = "\n".join(_ASKED.findall(text_of([block.text for block in blocks]))).strip()
    if said and message.role == "user":
        yield UserMessage(lane=lane, at=at, text=said)
    for block in blocks:
        if block.type == "tool_use" and _SEPARATOR in (block.name or ""):
            pending[block.id] = TranscriptCall(
                lane=lane,
                identity=f"{block.id}/{message.ts:.0f}",
                name=block.name or "",
                arguments=bytes(block.input),
                started=at,
            )
        elif block.type == "tool_result":
            ending = CallOutcome.NOT_RUN if block.is_error else by_output(block.content)
            yield from finished(pending.pop(block.tool_use_id, None), at, ending)
