"""Transcripts of Claude Code, Gemini CLI, Qwen Code, which began as a fork of it, Copilot CLI and opencode.

Claude Code: `projects/<directory>/<session>.jsonl`, those of its agents next to them or in folders. Gemini CLI:
`tmp/<project>/chats/session-*.jsonl`, those of its agents in folders next to them. Qwen Code:
`projects/<directory>/chats/<session>.jsonl`, and others of its agents. Copilot CLI:
`session-state/<session>/events.jsonl`. opencode: the messages in its database, `opencode.db`.
"""

import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from riglm.adapters.clients import transcript_reading as reading
from riglm.adapters.clients.codex import CLINE, CODEX
from riglm.domain.session_cost import RequestTokens
from riglm.domain.transcripts import (
    Advance,
    CallOutcome,
    TranscriptCall,
    TranscriptEvent,
    TranscriptRequest,
    TranscriptSource,
)

_MCP_PREFIX: Final = "mcp__"
_CLAUDE_REFUSALS: Final = ("The user doesn't want to", "[Request interrupted", "<tool_use_error>", "MCP error")
_CLAUDE_USAGE: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
_CLAUDE_NOT_ASKED: Final = (
    "<command-", "<local-command", "<system-reminder>", "<task-notification", "Caveat:", "[Request int",
)  # fmt: skip
_CLAUDE_OTHERS: Final = re.compile(rb'.*"(?:session_meta|projectHash|session\.start)"|\{"uuid":|\{$|SQLite format 3')
"""What transcripts of others begin with; those of this client begin with anything."""


def _read_claude_code(file: Path, advance: Advance) -> Iterator[TranscriptEvent]:
    conversation = _ClaudeCodeConversation(file.stem)
    return reading.events(file, advance, conversation.take, (b'"user"', b'"tool_use"', b'"usage"'))


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
        message, at = line["message"], reading.moment(line["timestamp"])
        content = message.get("content") or ""
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        self._directory = self._directory or line.get("cwd") or ""  # later ones follow what the agent does
        agent = line.get("agentId") or ("agents" if line.get("isSidechain") else "")
        lane = "/".join(filter(None, (line.get("sessionId") or self._name, agent)))
        if line["type"] == "assistant":
            self._begin(lane, blocks, at)
            id_ = message.get("id")
            # All lines of a message repeat its usage.
            tokens = RequestTokens(*reading.token_counts(message.get("usage"), *_CLAUDE_USAGE))
            is_request = isinstance(id_, str) and tokens.prompt
            return [TranscriptRequest(lane=lane, identity=id_, at=at, tokens=tokens)] if is_request else []
        ended = []
        for block in blocks:
            call = self._open.pop(block.get("tool_use_id") or "", None)
            ended += reading.end_call(call, at, _claude_outcome(line, block))
        if line.get("isMeta") or line.get("isCompactSummary"):
            return ended
        texts = (reading.text_of(block).strip() for block in blocks if block.get("type") == "text")
        written = [text for text in texts if not text.startswith(_CLAUDE_NOT_ASKED)]
        return ended + reading.user_message(lane, at, written)

    def _begin(self, lane: str, blocks: list[dict[str, Any]], at: float) -> None:
        for block in blocks:
            match block:
                case {"type": "tool_use", "id": str(id_), "name": str(name)} if name.startswith(_MCP_PREFIX):
                    tool, given = name.removeprefix(_MCP_PREFIX), block.get("input")
                    call = reading.begin_call(lane, id_, tool, given, at, directory=self._directory)
                    self._open.setdefault(id_, call)


def _claude_outcome(line: dict[str, Any], result: dict[str, Any]) -> CallOutcome:
    if line.get("toolDenialKind") is not None:
        return CallOutcome.NOT_RUN
    if not result.get("is_error"):
        return CallOutcome.DONE
    is_refused = reading.text_of(result.get("content")).startswith(_CLAUDE_REFUSALS)
    return CallOutcome.NOT_RUN if is_refused else CallOutcome.FAILED


CLAUDE_CODE: Final = TranscriptSource(
    client="claude-code",
    introduces_itself="claude-code",
    separator="__",
    pattern="*.jsonl",
    places=lambda home, environment: [Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "projects"],
    is_head=lambda head: not _CLAUDE_OTHERS.match(head),
    read=_read_claude_code,
)
"""Claude Code, versions 1 and 2; each of its agents is a separate conversation."""


_GEMINI_PREFIX: Final = "mcp_"
_GEMINI_OUTCOMES: Final = {"success": CallOutcome.DONE, "error": CallOutcome.FAILED, "cancelled": CallOutcome.NOT_RUN}


def _read_gemini(file: Path, advance: Advance) -> Iterator[TranscriptEvent]:
    """Yield the events of a file; what it has last of a message counts."""
    lane, messages = "", dict[str, dict[str, Any]]()

    def take(record: dict[str, Any]) -> tuple[()]:
        nonlocal lane
        if record.get("id"):
            messages[record["id"]] = record
        else:
            lane = lane or record.get("sessionId") or ""
        return ()

    yield from reading.events(file, advance, take)
    for record in messages.values():
        yield from reading.take_safely(0, _gemini_events, lane or file.stem, record)


def _gemini_events(lane: str, record: dict[str, Any]) -> list[TranscriptEvent]:
    at = reading.moment(record["timestamp"])
    if record.get("type") == "user":
        return reading.user_message(lane, at, record.get("content"))
    calls: list[TranscriptEvent] = []
    for call in record.get("toolCalls") or ():
        name, status = call.get("name", ""), call.get("status")
        if name.startswith(_GEMINI_PREFIX) and status in _GEMINI_OUTCOMES:
            ended = reading.moment(call["timestamp"])
            begun = reading.begin_call(
                lane, f"{lane}/{call.get('id')}", name.removeprefix(_GEMINI_PREFIX), call.get("args"), ended
            )
            calls += reading.end_call(begun, ended, _GEMINI_OUTCOMES[status])
    # `input` includes what was read from the cache, `output` no thoughts.
    counts = reading.token_counts(record.get("tokens"), "input", "tool", "cached", "output", "thoughts")
    prompt, cached, output = counts[0] + counts[1], counts[2], counts[3] + counts[4]
    tokens = RequestTokens(uncached=max(0, prompt - cached), cached=min(cached, prompt), written=0, output=output)
    request = TranscriptRequest(lane=lane, identity=f"{lane}/{record['id']}", at=at, tokens=tokens)
    return [request, *calls] if tokens.prompt else calls


GEMINI: Final = TranscriptSource(
    client="gemini",
    introduces_itself="gemini-cli-mcp-client",
    separator="_",
    pattern="*.jsonl",
    places=lambda home, environment: Path(environment.get("GEMINI_CLI_HOME") or home).glob(".gemini/tmp/*/chats"),
    is_head=lambda head: b'"projectHash"' in head,
    read=_read_gemini,
)
"""Gemini CLI since its transcripts are JSON lines."""


_QWEN_READ: Final = (b'"functionCall"', b'"toolCallResult"', b'"user"')


def _read_qwen(file: Path, advance: Advance) -> Iterator[TranscriptEvent]:
    pending: dict[str | None, TranscriptCall] = {}

    def take(line: dict[str, Any]) -> list[TranscriptEvent]:
        stamp, at = line["timestamp"], reading.moment(line["timestamp"])
        lane = "/".join(filter(None, (line.get("sessionId") or file.stem, line.get("agentId"))))
        parts = (line.get("message") or {}).get("parts", [])
        if line.get("type") == "user" and line.get("provenance") in {None, "real_user"}:
            return reading.user_message(lane, at, parts)
        for part in parts if line.get("type") == "assistant" else ():
            call = part.get("functionCall") or {}
            if call.get("name", "").startswith(_MCP_PREFIX):
                id_, name, given = call.get("id"), call["name"].removeprefix(_MCP_PREFIX), call.get("args")
                directory = line.get("cwd") or ""
                pending[id_] = reading.begin_call(lane, f"{id_}/{stamp}", name, given, at, directory=directory)
        result = line.get("toolCallResult") or {}
        return reading.end_call(pending.pop(result.get("callId"), None), at, _qwen_outcome(result)) if result else []

    return reading.events(file, advance, take, _QWEN_READ)


def _qwen_outcome(result: dict[str, Any]) -> CallOutcome:
    if result.get("status") == "success":
        return CallOutcome.DONE
    return CallOutcome.FAILED if result.get("errorType") == "mcp_tool_error" else CallOutcome.NOT_RUN


def _qwen_places(home: Path, environment: Mapping[str, str]) -> list[Path]:
    named = environment.get("QWEN_RUNTIME_DIR") or environment.get("QWEN_HOME")
    return [Path(named or home / ".qwen") / "projects"]


QWEN: Final = TranscriptSource(
    client="qwen",
    introduces_itself="qwen-cli-mcp-client",
    separator="__",
    pattern="*.jsonl",
    places=_qwen_places,
    is_head=lambda head: head.startswith(b'{"uuid":'),
    read=_read_qwen,
)
"""Qwen Code; each of its agents is a separate conversation."""


_COPILOT_READ: Final = (b'"session.start"', b'"user.message"', b'"tool.execution_start"', b'"tool.execution_complete"')


def _read_copilot(file: Path, advance: Advance) -> Iterator[TranscriptEvent]:
    session, pending = file.parent.name, dict[str, TranscriptCall]()

    def take(event: dict[str, Any]) -> list[TranscriptEvent]:
        nonlocal session
        if f'"{event.get("type")}"'.encode() not in _COPILOT_READ:
            return []
        data, stamp, at = event["data"], event["timestamp"], reading.moment(event["timestamp"])
        lane = "/".join(filter(None, (session, event.get("agentId"))))
        call_id = data.get("toolCallId", "")
        match event["type"], data:
            case "session.start", {"sessionId": str(named)}:
                session = named or session
            case "user.message", _ if not data.get("source") and not data.get("isAutopilotContinuation"):
                return reading.user_message(lane, at, data.get("content"))
            case "tool.execution_start", {"mcpToolName": str(tool)}:
                server, given = data.get("mcpConfigServerName") or data.get("mcpServerName"), data.get("arguments")
                pending[call_id] = reading.begin_call(lane, f"{call_id}/{stamp}", tool, given, at, server=server)
            case "tool.execution_complete", _:
                return reading.end_call(pending.pop(call_id, None), at, _copilot_outcome(data))
        return []

    return reading.events(file, advance, take, _COPILOT_READ)


def _copilot_outcome(data: dict[str, Any]) -> CallOutcome:
    match data:
        case {"success": True}:
            return CallOutcome.DONE
        case {"toolTelemetry": {"properties": {"failure_category": "server_error"}}}:
            return CallOutcome.FAILED
        case _:  # denied, disconnected or no such tool
            return CallOutcome.NOT_RUN


COPILOT: Final = TranscriptSource(
    client="copilot",
    introduces_itself="copilot-cli",
    separator="-",
    pattern="events.jsonl",
    places=lambda home, environment: [Path(environment.get("COPILOT_HOME") or home / ".copilot") / "session-state"],
    is_head=lambda head: b'"session.start"' in head,
    read=_read_copilot,
)
"""Copilot CLI; each of its agents is a separate conversation."""


_OPENCODE_NAMES: Final = "opencode*.db"
_OPENCODE_SEPARATOR: Final = "_"
_OPENCODE_TOOLS: Final = frozenset({"apply_patch", "plan_enter", "plan_exit"})
"""Tools of opencode with names that look like those of a server's tools."""

_OPENCODE_NOT_RUN: Final = (
    "The user rejected permission", "The user has specified a rule", "Tool execution aborted", "MCP error",
)  # fmt: skip
_OPENCODE_PARTS: Final = """
    SELECT message.session_id, message.time_created, message.data, part.data
    FROM message JOIN part ON part.message_id = message.id
    ORDER BY message.session_id, message.time_created, message.id, part.id
"""


def _opencode_places(home: Path, environment: Mapping[str, str]) -> list[Path]:
    folder = Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share") / "opencode"
    return list(folder.glob(_OPENCODE_NAMES))  # not the folder, which holds snapshots of all projects


def _read_opencode(file: Path, advance: Advance) -> Iterator[TranscriptEvent]:
    """Yield the events of a database; what is reported as a line is a row."""
    advance(file.stat().st_size)
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            for number, (lane, created, message, part) in enumerate(database.execute(_OPENCODE_PARTS), 1):
                row = f'{{"message": {message}, "part": {part}}}'.encode()
                yield from reading.take_safely(number, _opencode_events, lane, created / 1000, row)
    except sqlite3.Error as error:
        raise OSError(str(error)) from error


def _opencode_events(lane: str, at: float, text: bytes) -> list[TranscriptEvent]:
    row = reading.decode_json(text)
    part, role = row["part"], row["message"].get("role")
    match part:
        case {"type": "text"} if role == "user" and not part.get("synthetic"):
            return reading.user_message(lane, at, part)
        case {"tool": str(tool), "state": {"status": "completed" | "error"} as state} if _is_mcp(tool):
            start, end = state["time"]["start"], state["time"]["end"]
            is_refused = state.get("error", "").startswith(_OPENCODE_NOT_RUN)
            failure = CallOutcome.NOT_RUN if is_refused else CallOutcome.FAILED
            outcome = CallOutcome.DONE if state["status"] == "completed" and not is_refused else failure
            call = reading.begin_call(lane, f"{part.get('callID')}/{start:.0f}", tool, state.get("input"), start / 1000)
            return reading.end_call(call, end / 1000, outcome)
    return []


def _is_mcp(tool: str) -> bool:
    return _OPENCODE_SEPARATOR in tool and tool not in _OPENCODE_TOOLS


OPENCODE: Final = TranscriptSource(
    client="opencode",
    introduces_itself="opencode",
    separator=_OPENCODE_SEPARATOR,
    pattern=_OPENCODE_NAMES,
    places=_opencode_places,
    is_head=lambda head: head.startswith(b"SQLite format 3\0"),
    read=_read_opencode,
)
"""opencode since it keeps its sessions in SQLite."""


SOURCES: Final = {each.client: each for each in (CLAUDE_CODE, CODEX, GEMINI, OPENCODE, CLINE, COPILOT, QWEN)}
"""The clients whose transcripts can be read."""
