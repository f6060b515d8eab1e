"""Copilot CLI's transcripts: `session-state/<session>/events.jsonl`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from riglm.adapters.clients.transcripts.reading import encode_json, end_call, events, moment, user_message
from riglm.domain.transcripts import Advance, CallOutcome, TranscriptCall, TranscriptEvent, TranscriptSource

_READ: Final = (b'"session.start"', b'"user.message"', b'"tool.execution_start"', b'"tool.execution_complete"')


def _read_file(file: Path, advance: Advance) -> Iterator[TranscriptEvent]:
    session, pending = file.parent.name, dict[str, TranscriptCall]()

    def take(event: dict[str, Any]) -> list[TranscriptEvent]:
        nonlocal session
        if f'"{event.get("type")}"'.encode() not in _READ:
            return []
        data, stamp, at = event["data"], event["timestamp"], moment(event["timestamp"])
        lane = "/".join(filter(None, (session, event.get("agentId"))))
        call_id = data.get("toolCallId", "")
        match event["type"], data:
            case "session.start", {"sessionId": str(named)}:
                session = named or session
            case "user.message", _ if not data.get("source") and not data.get("isAutopilotContinuation"):
                return user_message(lane, at, data.get("content"))
            case "tool.execution_start", {"mcpToolName": str(tool)}:
                pending[call_id] = TranscriptCall(
                    lane=lane,
                    identity=f"{call_id}/{stamp}",
                    name=tool,
                    server=data.get("mcpConfigServerName") or data.get("mcpServerName"),
                    arguments=encode_json(data.get("arguments")),
                    started=at,
                )
            case "tool.execution_complete", _:
                return end_call(pending.pop(call_id, None), at, _outcome(data))
        return []

    return events(file, advance, take, _READ)


def _outcome(data: dict[str, Any]) -> CallOutcome:
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
    read=_read_file,
)
"""Copilot CLI; each of its agents is a separate conversation."""
