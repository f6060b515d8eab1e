"""Gemini CLI's transcripts: `tmp/<project>/chats/session-*.jsonl`, those of its agents in folders next to them."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from riglm.adapters.clients.transcripts.lines import decoded, events, found_below, head, moment, text_of, token_counts
from riglm.domain.token_usage import RequestTokens
from riglm.ports.clients import (
    CallOutcome,
    TranscriptCall,
    TranscriptEvent,
    TranscriptRequest,
    TranscriptsPort,
    UnreadableLine,
    UserMessage,
)

_PREFIX: Final = "mcp_"
_ENDINGS: Final = {"success": CallOutcome.DONE, "error": CallOutcome.FAILED, "cancelled": CallOutcome.NOT_RUN}


class _Call(msgspec.Struct):
    id: str = ""
    name: str = ""
    args: msgspec.Raw = msgspec.Raw(b"{}")
    status: str = ""
    timestamp: str = ""


class _Record(msgspec.Struct, rename={"session_id": "sessionId", "tool_calls": "toolCalls"}):
    id: str = ""
    session_id: str = ""
    type: str = ""
    timestamp: str = ""
    content: Any = None
    tool_calls: list[_Call] | None = None
    tokens: Any = None


_read: Final = msgspec.json.Decoder(_Record).decode


class GeminiTranscripts(TranscriptsPort):
    """Reads what Gemini CLI writes since its transcripts are JSON lines; what it says last of a message counts."""

    client = "gemini"
    introduces_itself = "gemini-cli-mcp-client"
    separator = "_"

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        """`home` is the user's; `environment` may name a different one in GEMINI_CLI_HOME."""
        self._folder = Path(environment.get("GEMINI_CLI_HOME") or home) / ".gemini" / "tmp"

    def files(self, place: Path | None = None) -> list[Path]:
        found = found_below(place or self._folder, "*.jsonl")
        return found if place is not None else [file for file in found if "chats" in file.parts]

    def wrote(self, file: Path) -> bool:
        return b'"projectHash"' in head(file)

    def read(self, file: Path, advance: Callable[[int], None]) -> Iterator[TranscriptEvent]:
        lane, messages = "", dict[str, _Record]()

        def take(text: bytes) -> tuple[()]:
            nonlocal lane
            record = decoded(_read, text)
            if record.id:
                messages[record.id] = record
            else:
                lane = lane or record.session_id
            return ()

        yield from events(file, advance, take)
        for record in messages.values():
            try:
                yield from _happenings(record, lane or file.stem)
            except ValueError as error:
                yield UnreadableLine(line=0, reason=str(error))


def _happenings(record: _Record, lane: str) -> list[TranscriptEvent]:
    if record.type == "user":
        text = text_of(record.content).strip()
        return [UserMessage(lane=lane, at=moment(record.timestamp), text=text)] if text else []
    return _requests(record, lane) + [
        TranscriptCall(
            lane=lane,
            identity=f"{lane}/{call.id}",
            name=call.name.removeprefix(_PREFIX),
            arguments=bytes(call.args),
            started=moment(call.timestamp),
            ended=moment(call.timestamp),
            ending=_ENDINGS[call.status],
        )
        for call in record.tool_calls or ()
        if call.name.startswith(_PREFIX) and call.status in _ENDINGS
    ]


def _requests(record: _Record, lane: str) -> list[TranscriptEvent]:
    """Return the model request of a message; `input` includes what was read from the cache, `output` no thoughts."""
    counts = token_counts(record.tokens, "input", "tool", "cached", "output", "thoughts")
    prompt, cached, output = counts[0] + counts[1], counts[2], counts[3] + counts[4]
    tokens = RequestTokens(uncached=max(0, prompt - cached), cached=min(cached, prompt), written=0, output=output)
    at, identity = moment(record.timestamp), f"{lane}/{record.id}"
    return [TranscriptRequest(lane=lane, identity=identity, at=at, tokens=tokens)] if tokens.prompt else []
