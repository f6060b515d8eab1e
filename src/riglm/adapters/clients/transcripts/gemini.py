"""Transcripts of Gemini CLI and of Qwen Code, which began as a fork of it.

Gemini CLI: `tmp/<project>/chats/session-*.jsonl`, those of its agents in folders next to them. Qwen Code:
`projects/<directory>/chats/<session>.jsonl`, and others of its agents.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from riglm.adapters.clients.transcripts.reading import (
    encode_json,
    end_call,
    events,
    moment,
    take_safely,
    token_counts,
    user_message,
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

_PREFIX: Final = "mcp_"
_OUTCOMES: Final = {"success": CallOutcome.DONE, "error": CallOutcome.FAILED, "cancelled": CallOutcome.NOT_RUN}


def _read_file(file: Path, advance: Advance) -> Iterator[TranscriptEvent]:
    """Yield the events of a file; what it has last of a message counts."""
    lane, messages = "", dict[str, dict[str, Any]]()

    def take(record: dict[str, Any]) -> tuple[()]:
        nonlocal lane
        if record.get("id"):
            messages[record["id"]] = record
        else:
            lane = lane or record.get("sessionId") or ""
        return ()

    yield from events(file, advance, take)
    for record in messages.values():
        yield from take_safely(0, encode_json(record), partial(_record_events, lane or file.stem))


def _record_events(lane: str, record: dict[str, Any]) -> list[TranscriptEvent]:
    at = moment(record["timestamp"])
    if record.get("type") == "user":
        return user_message(lane, at, record.get("content"))
    calls = []
    for call in record.get("toolCalls") or ():
        name, status = call.get("name", ""), call.get("status")
        if name.startswith(_PREFIX) and status in _OUTCOMES:
            ended = moment(call["timestamp"])
            calls.append(
                TranscriptCall(
                    lane=lane,
                    identity=f"{lane}/{call.get('id')}",
                    name=name.removeprefix(_PREFIX),
                    arguments=encode_json(call.get("args")),
                    started=ended,
                    ended=ended,
                    outcome=_OUTCOMES[status],
                )
            )
    # `input` includes what was read from the cache, `output` no thoughts.
    counts = token_counts(record.get("tokens"), "input", "tool", "cached", "output", "thoughts")
    prompt, cached, output = counts[0] + counts[1], counts[2], counts[3] + counts[4]
    tokens = RequestTokens(uncached=max(0, prompt - cached), cached=min(cached, prompt), written=0, output=output)
    request = TranscriptRequest(lane=lane, identity=f"{lane}/{record['id']}", at=at, tokens=tokens)
    return [request, *calls] if tokens.prompt else [*calls]


GEMINI: Final = TranscriptSource(
    client="gemini",
    introduces_itself="gemini-cli-mcp-client",
    separator="_",
    pattern="*.jsonl",
    places=lambda home, environment: Path(environment.get("GEMINI_CLI_HOME") or home).glob(".gemini/tmp/*/chats"),
    is_head=lambda head: b'"projectHash"' in head,
    read=_read_file,
)
"""Gemini CLI since its transcripts are JSON lines."""


_QWEN_PREFIX: Final = "mcp__"
_QWEN_READ: Final = (b'"functionCall"', b'"toolCallResult"', b'"user"')


def _read_qwen(file: Path, advance: Advance) -> Iterator[TranscriptEvent]:
    pending: dict[str | None, TranscriptCall] = {}

    def take(line: dict[str, Any]) -> list[TranscriptEvent]:
        stamp, at = line["timestamp"], moment(line["timestamp"])
        lane = "/".join(filter(None, (line.get("sessionId") or file.stem, line.get("agentId"))))
        parts = (line.get("message") or {}).get("parts", [])
        if line.get("type") == "user" and line.get("provenance") in {None, "real_user"}:
            return user_message(lane, at, parts)
        for part in parts if line.get("type") == "assistant" else ():
            call = part.get("functionCall") or {}
            if call.get("name", "").startswith(_QWEN_PREFIX):
                pending[call.get("id")] = TranscriptCall(
                    lane=lane,
                    identity=f"{call.get('id')}/{stamp}",
                    name=call["name"].removeprefix(_QWEN_PREFIX),
                    arguments=encode_json(call.get("args")),
                    started=at,
                    directory=line.get("cwd") or "",
                )
        result = line.get("toolCallResult") or {}
        return end_call(pending.pop(result.get("callId"), None), at, _qwen_outcome(result)) if result else []

    return events(file, advance, take, _QWEN_READ)


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
