"""Copilot CLI's transcripts: `session-state/<session>/events.jsonl`."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from riglm.adapters.clients.transcripts.lines import decoded, events, finished, found_below, head, moment
from riglm.ports.clients import CallOutcome, TranscriptCall, TranscriptEvent, TranscriptsPort, UserMessage

_READ: Final = (b'"session.start"', b'"user.message"', b'"tool.execution_start"', b'"tool.execution_complete"')


class _Data(msgspec.Struct, rename="camel"):
    session_id: str = ""
    content: Any = None
    source: str | None = None
    is_autopilot_continuation: bool | None = None
    tool_call_id: str = ""
    mcp_server_name: str | None = None
    mcp_config_server_name: str | None = None
    mcp_tool_name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw(b"{}")
    success: bool = False
    tool_telemetry: Any = None


class _Event(msgspec.Struct, rename="camel"):
    type: str = ""
    timestamp: str = ""
    agent_id: str | None = None
    data: msgspec.Raw = msgspec.Raw(b"{}")


_read: Final = msgspec.json.Decoder(_Event).decode
_read_data: Final = msgspec.json.Decoder(_Data).decode


class CopilotTranscripts(TranscriptsPort):
    """Reads what Copilot CLI writes; each of its agents is a separate conversation."""

    client = "copilot"
    introduces_itself = "copilot-cli"
    separator = "-"

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        """`home` is the user's; `environment` may name another place in COPILOT_HOME."""
        self._folder = Path(environment.get("COPILOT_HOME") or home / ".copilot") / "session-state"

    def files(self, place: Path | None = None) -> list[Path]:
        return found_below(place or self._folder, "events.jsonl")

    def wrote(self, file: Path) -> bool:
        return b'"session.start"' in head(file)

    def read(self, file: Path, advance: Callable[[int], None]) -> Iterator[TranscriptEvent]:
        session, pending = file.parent.name, dict[str, TranscriptCall]()

        def take(text: bytes) -> list[TranscriptEvent]:
            nonlocal session
            event = decoded(_read, text)
            if f'"{event.type}"'.encode() not in _READ:
                return []
            data, at = decoded(_read_data, bytes(event.data)), moment(event.timestamp)
            lane = f"{session}/{event.agent_id}" if event.agent_id else session
            match event.type:
                case "session.start":
                    session = data.session_id or session
                case "user.message" if not data.source and not data.is_autopilot_continuation:
                    if isinstance(data.content, str) and data.content.strip():
                        return [UserMessage(lane=lane, at=at, text=data.content.strip())]
                case "tool.execution_start" if data.mcp_tool_name:
                    pending[data.tool_call_id] = TranscriptCall(
                        lane=lane,
                        identity=f"{data.tool_call_id}/{event.timestamp}",
                        name=data.mcp_tool_name,
                        server=data.mcp_config_server_name or data.mcp_server_name,
                        arguments=bytes(data.arguments),
                        started=at,
                    )
                case "tool.execution_complete":
                    return finished(pending.pop(data.tool_call_id, None), at, _ending(data))
            return []

        yield from events(file, advance, take, _READ)


def _ending(data: _Data) -> CallOutcome:
    if data.success:
        return CallOutcome.DONE
    match data.tool_telemetry:
        case {"properties": {"failure_category": "server_error"}}:
            return CallOutcome.FAILED
        case _:  # denied, disconnected or no such tool
            return CallOutcome.NOT_RUN
