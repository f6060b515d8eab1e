"""Codex's transcripts: `sessions/YYYY/MM/DD/rollout-*.jsonl`."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from riglm.adapters.clients.transcripts.lines import decoded, events, found_below, head, moment, token_counts
from riglm.domain.token_usage import RequestTokens
from riglm.ports.clients import (
    CallOutcome,
    TranscriptCall,
    TranscriptEvent,
    TranscriptRequest,
    TranscriptsPort,
    UserMessage,
)

_NOT_RUN: Final = (
    "unsupported call",
    "user rejected MCP tool call",
    "user cancelled MCP tool call",
    "tool call error",
    "err: ",
    "aborted by user",
)

_read: Final = msgspec.json.Decoder().decode


def by_result(result: Any) -> CallOutcome:
    """By the result that the note of its end holds."""
    match result:
        case {"Ok": {"isError": True}}:
            return CallOutcome.FAILED
        case {"Err": _}:
            return CallOutcome.NOT_RUN
        case _:
            return CallOutcome.DONE


def by_output(output: Any) -> CallOutcome:
    """Detect failures in the model's input where Codex wrote nothing else; not every failure can be detected."""
    told = output
    if isinstance(output, str):
        told = output.partition("\nOutput:\n")[2] if output.startswith("Wall time:") else output
        if told.startswith(("{", "[")):
            try:
                told = decoded(_read, told.encode())
            except (msgspec.MsgspecError, RecursionError):
                return CallOutcome.DONE  # it is cut, as long results are
    match told:
        case str(text) | [{"text": str(text)}, *_] | {"content": [{"text": str(text)}, *_]}:
            if text.startswith(_NOT_RUN):
                return CallOutcome.NOT_RUN
    match told:
        case {"isError": True} | {"is_error": True}:
            return CallOutcome.FAILED
        case _:
            return CallOutcome.DONE


_PREFIX: Final = "mcp__"
_SEPARATOR: Final = "__"
_READ: Final = (b"session_meta", b"function_call", b"mcp_tool_call_end", b"user_message", b"token_count")

_USAGE: Final = ("input_tokens", "cached_input_tokens", "output_tokens")

_COPYING_SECONDS: Final = 1.0
"""A fork begins with what its origin has, written down at once and with the time of that; no model answers so soon."""


class _Invocation(msgspec.Struct):
    server: str = ""
    tool: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"null")


class _Payload(msgspec.Struct):
    type: str = ""
    id: str | None = None
    cwd: str | None = None
    forked_from_id: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: Any = None
    message: Any = None
    invocation: _Invocation | None = None
    duration: Any = None
    result: Any = None
    output: Any = None
    info: Any = None


class _CodexLine(msgspec.Struct):
    timestamp: str = ""
    type: str = ""
    payload: msgspec.Raw = msgspec.Raw(b"{}")


_read_line: Final = msgspec.json.Decoder(_CodexLine).decode
_read_payload: Final = msgspec.json.Decoder(_Payload).decode


class CodexTranscripts(TranscriptsPort):
    """Reads what Codex writes.

    Versions that record the end of MCP calls name server and tool; in older ones both are part of the function name.
    """

    client = "codex"
    introduces_itself = "codex-mcp-client"
    separator = _SEPARATOR

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        """`home` is the user's; `environment` may name another place in CODEX_HOME."""
        folder = Path(environment.get("CODEX_HOME") or home / ".codex")
        self._folders = (folder / "sessions", folder / "archived_sessions")

    def files(self, place: Path | None = None) -> list[Path]:
        places = self._folders if place is None else (place,)
        found = [file for each in places for file in found_below(each, "rollout-*.jsonl")]
        return sorted(found, key=lambda file: file.name)  # by the time in it: what is forked comes before its forks

    def wrote(self, file: Path) -> bool:
        return b'"session_meta"' in head(file)

    def read(self, file: Path, advance: Callable[[int], None]) -> Iterator[TranscriptEvent]:
        conversation = _CodexConversation(file.stem)
        yield from events(file, advance, conversation.take, _READ)


class _CodexConversation:
    """What calls of one file wait for their results, and whose they are."""

    def __init__(self, name: str) -> None:
        self._lane = ""
        self._name = name
        self._directory = ""
        self._began = ""
        self._origin = ""
        self._copied_until = 0.0
        self._open: dict[str | None, tuple[_Payload, float]] = {}
        self._totals = [0, 0, 0]

    def take(self, text: bytes) -> list[TranscriptEvent]:
        """Parse a line."""
        line = decoded(_read_line, text)
        if line.type not in {"session_meta", "response_item", "event_msg"}:
            return []
        said = _read_payload(line.payload)
        if line.type == "session_meta":
            self._introduce(said, line.timestamp)
            return []
        return self._happened(said, moment(line.timestamp))

    def _happened(self, said: _Payload, at: float) -> list[TranscriptEvent]:
        match said.type:
            case "user_message" if isinstance(said.message, str) and said.message.strip():
                return [UserMessage(lane=self._lane or self._name, at=at, text=said.message.strip())]
            case "token_count" if isinstance(said.info, dict):
                return self._requested(token_counts(said.info.get("total_token_usage"), *_USAGE), at)
            case "function_call" if _qualified(said):
                self._open[said.call_id] = (said, at)
            case "mcp_tool_call_end" if said.invocation is not None:
                _, began = self._open.pop(said.call_id, (None, at - _seconds(said.duration)))
                return [self._by_event(said, said.invocation, began, at)]
            case "function_call_output" if said.call_id in self._open:
                call, began = self._open.pop(said.call_id)
                return [self._by_function(call, began, at, by_output(said.output))]
        return []

    def _introduce(self, meta: _Payload, timestamp: str) -> None:
        """Note the session of this file. After its introduction, a fork has those of the sessions it comes from."""
        if not self._lane:
            self._lane, self._began, self._directory = meta.id or "", timestamp, meta.cwd or ""
        is_own = meta.id == self._lane
        origin = meta.forked_from_id or ("" if is_own else meta.id)
        if origin and not (is_own and self._origin):
            self._origin = origin
            self._copied_until = moment(self._began) + _COPYING_SECONDS

    def _requested(self, totals: list[int], at: float) -> list[TranscriptEvent]:
        """Return the model request since the previous totals, which may be repeated, and which a fork continues.

        Smaller totals have started again at 0.
        """
        before = self._totals if totals >= self._totals else [0, 0, 0]
        self._totals = totals
        prompt, cached, output = (max(0, new - old) for new, old in zip(totals, before, strict=True))
        if not prompt or at <= self._copied_until:
            return []
        lane = self._lane or self._name
        tokens = RequestTokens(uncached=max(0, prompt - cached), cached=min(cached, prompt), written=0, output=output)
        return [TranscriptRequest(lane=lane, identity=f"{lane}/{totals}", at=at, tokens=tokens)]

    def _by_event(self, end: _Payload, told: _Invocation, began: float, at: float) -> TranscriptCall:
        given = bytes(told.arguments)
        return self._called(
            end.call_id, told.tool, told.server, b"{}" if given == b"null" else given, began, at, by_result(end.result)
        )

    def _by_function(self, call: _Payload, began: float, at: float, ending: CallOutcome) -> TranscriptCall:
        given = call.arguments if isinstance(call.arguments, str) else ""
        return self._called(call.call_id, _qualified(call), None, given.encode() or b"{}", began, at, ending)

    def _called(
        self,
        call_id: str | None,
        name: str,
        server: str | None,
        given: bytes,
        began: float,
        at: float,
        ending: CallOutcome,
    ) -> TranscriptCall:
        lane = self._lane or self._name
        return TranscriptCall(
            lane=lane,
            identity=f"{self._origin or lane}/{call_id}",
            name=name,
            server=server,
            arguments=given,
            started=began,
            ended=max(began, at),
            ending=ending,
            is_copy=began <= self._copied_until,
            directory=self._directory,
        )


def _qualified(call: _Payload) -> str:
    """The name of an MCP tool with its server's; empty for any other function."""
    name = call.name or ""
    whole = f"{call.namespace.removesuffix(_SEPARATOR)}{_SEPARATOR}{name}" if call.namespace else name
    return whole.removeprefix(_PREFIX) if whole.startswith(_PREFIX) else ""


def _seconds(duration: Any) -> float:
    match duration:
        case {"secs": int(whole), "nanos": int(rest)}:
            return whole + rest / 1e9
        case _:
            return 0.0
