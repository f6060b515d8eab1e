"""Claude Code's transcripts: `projects/<directory>/<session>.jsonl`, those of its agents next to them or in folders."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from riglm.adapters.clients.transcripts.lines import decoded, events, finished, found_below, head, moment, token_counts
from riglm.domain.token_usage import RequestTokens
from riglm.ports.clients import (
    CallOutcome,
    TranscriptCall,
    TranscriptEvent,
    TranscriptRequest,
    TranscriptsPort,
    UserMessage,
)

_PREFIX: Final = "mcp__"
_QUOTE: Final = ord('"')
_REFUSALS: Final = ("The user doesn't want to", "[Request interrupted", "<tool_use_error>", "MCP error")
_USAGE: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
_NOT_ASKED: Final = (
    "<command-",
    "<local-command",
    "<system-reminder>",
    "<task-notification",
    "Caveat:",
    "[Request int",
)

_OTHERS: Final = re.compile(rb'.*"(?:session_meta|projectHash|session\.start)"|\{"uuid":|\{$|SQLite format 3')
"""What transcripts of others begin with; those of this client begin with anything."""


class _ClaudeCodeLine(msgspec.Struct, rename="camel"):
    type: str = ""
    timestamp: str = ""
    session_id: str = ""
    cwd: str | None = None
    agent_id: str | None = None
    is_sidechain: bool | None = None
    is_meta: bool | None = None
    is_compact_summary: bool | None = None
    tool_denial_kind: Any = None
    message: msgspec.Raw = msgspec.Raw(b"{}")


class _Message(msgspec.Struct):
    content: msgspec.Raw = msgspec.Raw(b'""')
    id: Any = None
    usage: Any = None


class _Block(msgspec.Struct):
    type: str | None = None
    id: str | None = None
    name: str | None = None
    text: Any = None
    input: msgspec.Raw = msgspec.Raw(b"{}")
    tool_use_id: str | None = None
    is_error: bool | None = None
    content: msgspec.Raw = msgspec.Raw(b'""')


_read_line: Final = msgspec.json.Decoder(_ClaudeCodeLine).decode
_read_message: Final = msgspec.json.Decoder(_Message).decode
_read_blocks: Final = msgspec.json.Decoder(list[_Block]).decode
_read_any: Final = msgspec.json.Decoder().decode


class ClaudeCodeTranscripts(TranscriptsPort):
    """Reads what Claude Code writes, versions 1 and 2; each of its agents is a separate conversation."""

    client = "claude-code"
    introduces_itself = "claude-code"
    separator = "__"

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        """`home` is the user's; `environment` may name another place in CLAUDE_CONFIG_DIR."""
        self._folder = Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "projects"

    def files(self, place: Path | None = None) -> list[Path]:
        return found_below(place or self._folder, "*.jsonl")

    def wrote(self, file: Path) -> bool:
        return not _OTHERS.match(head(file))

    def read(self, file: Path, advance: Callable[[int], None]) -> Iterator[TranscriptEvent]:
        conversation = _ClaudeCodeConversation(file.stem)
        yield from events(file, advance, conversation.take, (b'"user"', b'"tool_use"', b'"usage"'))


class _ClaudeCodeConversation:
    """What calls of one file wait for their results."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._directory = ""
        self._open: dict[str, TranscriptCall] = {}

    def take(self, text: bytes) -> list[TranscriptEvent]:
        """Parse a line."""
        line = decoded(_read_line, text)
        if line.type not in {"user", "assistant"}:
            return []
        message = _read_message(line.message)
        content = message.content
        is_text = memoryview(content)[0] == _QUOTE
        blocks = [_Block(type="text", text=_read_any(content))] if is_text else _read_blocks(content)
        at = moment(line.timestamp)
        self._directory = self._directory or line.cwd or ""  # later ones follow what the agent does
        agent = line.agent_id or ("agents" if line.is_sidechain else "")
        lane = f"{line.session_id or self._name}/{agent}" if agent else line.session_id or self._name
        if line.type == "assistant":
            self._begin(lane, blocks, at)
            return _requested(message, lane, at)
        return self._ended(line, blocks, at) + _said(line, lane, blocks, at)

    def _begin(self, lane: str, blocks: list[_Block], at: float) -> None:
        for block in blocks:
            if block.type == "tool_use" and block.id and block.name and block.name.startswith(_PREFIX):
                call = TranscriptCall(
                    lane=lane,
                    identity=block.id,
                    name=block.name.removeprefix(_PREFIX),
                    arguments=bytes(block.input),
                    started=at,
                    directory=self._directory,
                )
                self._open.setdefault(block.id, call)

    def _ended(self, line: _ClaudeCodeLine, blocks: list[_Block], at: float) -> list[TranscriptEvent]:
        return [
            each
            for block in blocks
            if (call := self._open.pop(block.tool_use_id or "", None))
            for each in finished(call, at, _ending(line, block))
        ]


def _requested(message: _Message, lane: str, at: float) -> list[TranscriptEvent]:
    """Return the model request of a message, which all lines of the message repeat."""
    if not isinstance(message.id, str):
        return []
    tokens = RequestTokens(*token_counts(message.usage, *_USAGE))
    return [TranscriptRequest(lane=lane, identity=message.id, at=at, tokens=tokens)] if tokens.prompt else []


def _ending(line: _ClaudeCodeLine, result: _Block) -> CallOutcome:
    if line.tool_denial_kind is not None:
        return CallOutcome.NOT_RUN
    if not result.is_error:
        return CallOutcome.DONE
    said = _read_any(result.content)
    if isinstance(said, list):
        said = next((block.get("text") for block in said if isinstance(block, dict)), "")
    return CallOutcome.NOT_RUN if isinstance(said, str) and said.startswith(_REFUSALS) else CallOutcome.FAILED


def _said(line: _ClaudeCodeLine, lane: str, blocks: list[_Block], at: float) -> list[TranscriptEvent]:
    """What the user wrote, without what the client adds in the user's name."""
    if line.is_meta or line.is_compact_summary:
        return []
    written = (block.text.strip() for block in blocks if block.type == "text" and isinstance(block.text, str))
    text = "\n".join(part for part in written if part and not part.startswith(_NOT_ASKED))
    return [UserMessage(lane=lane, at=at, text=text)] if text else []
