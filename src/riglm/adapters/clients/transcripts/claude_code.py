"""Claude Code's transcripts: `projects/<directory>/<session>.jsonl`, those of its agents next to them or in folders."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from riglm.adapters.clients.transcripts.reading import (
    encode_json,
    end_call,
    events,
    moment,
    text_of,
    token_counts,
    user_message,  # fmt: skip
)
from riglm.domain.token_usage import RequestTokens
from riglm.domain.transcripts import (
    Advance,
    CallOutcome,
    TranscriptCall,
    TranscriptEvent,
    TranscriptRequest,
    TranscriptSource,  # fmt: skip
)

_PREFIX: Final = "mcp__"
_REFUSALS: Final = ("The user doesn't want to", "[Request interrupted", "<tool_use_error>", "MCP error")
_USAGE: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
_NOT_ASKED: Final = (
    "<command-", "<local-command", "<system-reminder>", "<task-notification", "Caveat:", "[Request int",
)  # fmt: skip
_OTHERS: Final = re.compile(rb'.*"(?:session_meta|projectHash|session\.start)"|\{"uuid":|\{$|SQLite format 3')
"""What transcripts of others begin with; those of this client begin with anything."""


def _read_file(file: Path, advance: Advance) -> Iterator[TranscriptEvent]:
    conversation = _ClaudeCodeConversation(file.stem)
    return events(file, advance, conversation.take, (b'"user"', b'"tool_use"', b'"usage"'))


class _ClaudeCodeConversation:
    """What calls of one file wait for their results."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._directory = ""
        self._open: dict[str, TranscriptCall] = {}

    def take(self, line: dict[str, Any]) -> list[TranscriptEvent]:
        """Return the events of a line."""
        if line.get("type") not in {"user", "assistant"}:
            return []
        message, at = line["message"], moment(line["timestamp"])
        content = message.get("content") or ""
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        self._directory = self._directory or line.get("cwd") or ""  # later ones follow what the agent does
        agent = line.get("agentId") or ("agents" if line.get("isSidechain") else "")
        lane = "/".join(filter(None, (line.get("sessionId") or self._name, agent)))
        if line["type"] == "assistant":
            self._begin(lane, blocks, at)
            tokens = RequestTokens(*token_counts(message.get("usage"), *_USAGE))  # all lines of a message repeat it
            id_ = message.get("id")
            is_request = isinstance(id_, str) and tokens.prompt
            return [TranscriptRequest(lane=lane, identity=id_, at=at, tokens=tokens)] if is_request else []
        ended = []
        for block in blocks:
            call = self._open.pop(block.get("tool_use_id") or "", None)
            ended += end_call(call, at, _outcome(line, block))
        if line.get("isMeta") or line.get("isCompactSummary"):
            return ended
        written = (text_of(block).strip() for block in blocks if block.get("type") == "text")
        return ended + user_message(lane, at, [part for part in written if not part.startswith(_NOT_ASKED)])

    def _begin(self, lane: str, blocks: list[dict[str, Any]], at: float) -> None:
        for block in blocks:
            match block:
                case {"type": "tool_use", "id": str(id_), "name": str(name)} if name.startswith(_PREFIX):
                    call = TranscriptCall(
                        lane=lane,
                        identity=id_,
                        name=name.removeprefix(_PREFIX),
                        arguments=encode_json(block.get("input")),
                        started=at,
                        directory=self._directory,
                    )
                    self._open.setdefault(id_, call)


def _outcome(line: dict[str, Any], result: dict[str, Any]) -> CallOutcome:
    if line.get("toolDenialKind") is not None:
        return CallOutcome.NOT_RUN
    if not result.get("is_error"):
        return CallOutcome.DONE
    return CallOutcome.NOT_RUN if text_of(result.get("content")).startswith(_REFUSALS) else CallOutcome.FAILED


CLAUDE_CODE: Final = TranscriptSource(
    client="claude-code",
    introduces_itself="claude-code",
    separator="__",
    pattern="*.jsonl",
    places=lambda home, environment: [Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "projects"],
    is_head=lambda head: not _OTHERS.match(head),
    read=_read_file,
)
"""Claude Code, versions 1 and 2; each of its agents is a separate conversation."""
