"""Qwen Code's transcripts: `projects/<directory>/chats/<session>.jsonl`, and others of its agents."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from riglm.adapters.clients.transcripts.lines import decoded, events, finished, found_below, head, moment, text_of
from riglm.ports.clients import CallOutcome, TranscriptCall, TranscriptEvent, TranscriptsPort, UserMessage

_PREFIX: Final = "mcp__"
_READ: Final = (b'"functionCall"', b'"toolCallResult"', b'"user"')


class _FunctionCall(msgspec.Struct):
    id: str | None = None
    name: str = ""
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Part(msgspec.Struct, rename="camel"):
    function_call: _FunctionCall | None = None
    text: Any = None


class _Message(msgspec.Struct):
    parts: list[_Part] = []


class _Result(msgspec.Struct, rename="camel"):
    call_id: str = ""
    status: str = ""
    error_type: str | None = None


class _QwenLine(msgspec.Struct, rename="camel"):
    type: str = ""
    timestamp: str = ""
    session_id: str = ""
    cwd: str | None = None
    agent_id: str | None = None
    provenance: str | None = None
    message: _Message | None = None
    tool_call_result: _Result | None = None


_read: Final = msgspec.json.Decoder(_QwenLine).decode


class QwenTranscripts(TranscriptsPort):
    """Reads what Qwen Code writes; each of its agents is a separate conversation."""

    client = "qwen"
    introduces_itself = "qwen-cli-mcp-client"
    separator = "__"

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        """`home` is the user's; `environment` may name another place in QWEN_RUNTIME_DIR or QWEN_HOME."""
        named = environment.get("QWEN_RUNTIME_DIR") or environment.get("QWEN_HOME")
        self._folder = Path(named or home / ".qwen") / "projects"

    def files(self, place: Path | None = None) -> list[Path]:
        return found_below(place or self._folder, "*.jsonl")

    def wrote(self, file: Path) -> bool:
        return head(file).startswith(b'{"uuid":')

    def read(self, file: Path, advance: Callable[[int], None]) -> Iterator[TranscriptEvent]:
        pending: dict[str | None, TranscriptCall] = {}

        def take(text: bytes) -> list[TranscriptEvent]:
            line = decoded(_read, text)
            at = moment(line.timestamp)
            lane = "/".join(filter(None, (line.session_id or file.stem, line.agent_id)))
            parts = line.message.parts if line.message else []
            if line.type == "user" and line.provenance in {None, "real_user"}:
                said = text_of([part.text for part in parts]).strip()
                return [UserMessage(lane=lane, at=at, text=said)] if said else []
            for call in (part.function_call for part in parts if line.type == "assistant"):
                if call is not None and call.name.startswith(_PREFIX):
                    pending[call.id] = TranscriptCall(
                        lane=lane,
                        identity=f"{call.id}/{line.timestamp}",
                        name=call.name.removeprefix(_PREFIX),
                        arguments=bytes(call.args),
                        started=at,
                        directory=line.cwd or "",
                    )
            result = line.tool_call_result
            return finished(pending.pop(result.call_id, None), at, _ending(result)) if result else []

        yield from events(file, advance, take, _READ)


def _ending(result: _Result) -> CallOutcome:
    if result.status == "success":
        return CallOutcome.DONE
    return CallOutcome.FAILED if result.error_type == "mcp_tool_error" else CallOutcome.NOT_RUN
