"""Qwen Code's transcripts: `projects/<directory>/chats/<session>.jsonl`, and others of its agents."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from riglm.adapters.clients.transcripts.reading import encode_json, end_call, events, moment, user_message
from riglm.domain.transcripts import Advance, CallOutcome, TranscriptCall, TranscriptEvent, TranscriptSource

_PREFIX: Final = "mcp__"
_READ: Final = (b'"functionCall"', b'"toolCallResult"', b'"user"')


def _read_file(file: Path, advance: Advance) -> Iterator[TranscriptEvent]:
    pending: dict[str | None, TranscriptCall] = {}

    def take(line: dict[str, Any]) -> list[TranscriptEvent]:
        stamp, at = line["timestamp"], moment(line["timestamp"])
        lane = "/".join(filter(None, (line.get("sessionId") or file.stem, line.get("agentId"))))
        parts = (line.get("message") or {}).get("parts", [])
        if line.get("type") == "user" and line.get("provenance") in {None, "real_user"}:
            return user_message(lane, at, parts)
        for part in parts if line.get("type") == "assistant" else ():
            call = part.get("functionCall") or {}
            if call.get("name", "").startswith(_PREFIX):
                pending[call.get("id")] = TranscriptCall(
                    lane=lane,
                    identity=f"{call.get('id')}/{stamp}",
                    name=call["name"].removeprefix(_PREFIX),
                    arguments=encode_json(call.get("args")),
                    started=at,
                    directory=line.get("cwd") or "",
                )
        result = line.get("toolCallResult") or {}
        return end_call(pending.pop(result.get("callId"), None), at, _outcome(result)) if result else []

    return events(file, advance, take, _READ)


def _outcome(result: dict[str, Any]) -> CallOutcome:
    if result.get("status") == "success":
        return CallOutcome.DONE
    return CallOutcome.FAILED if result.get("errorType") == "mcp_tool_error" else CallOutcome.NOT_RUN


def _places(home: Path, environment: Mapping[str, str]) -> list[Path]:
    named = environment.get("QWEN_RUNTIME_DIR") or environment.get("QWEN_HOME")
    return [Path(named or home / ".qwen") / "projects"]


QWEN: Final = TranscriptSource(
    client="qwen",
    introduces_itself="qwen-cli-mcp-client",
    separator="__",
    pattern="*.jsonl",
    places=_places,
    is_head=lambda head: head.startswith(b'{"uuid":'),
    read=_read_file,
)
"""Qwen Code; each of its agents is a separate conversation."""
