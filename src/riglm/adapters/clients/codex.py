"""Transcripts of Codex and Cline, whose outputs of tools are read alike.

Codex: `sessions/YYYY/MM/DD/rollout-*.jsonl`. Cline: `sessions/<session>/<session>.messages.json`, those of its agents
next to them.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from riglm.adapters.clients import transcript_reading as reading
from riglm.domain.session_cost import RequestTokens
from riglm.domain.transcripts import (
    Advance,
    CallOutcome,
    TranscriptCall,
    TranscriptEvent,
    TranscriptRequest,
    TranscriptSource,
)

_NOT_RUN: Final = (
    "unsupported call", "user rejected MCP tool call", "user cancelled MCP tool call", "tool call error", "err: ",
    "aborted by user",
)  # fmt: skip
_PREFIX: Final = "mcp__"
_SEPARATOR: Final = "__"
_READ: Final = (b"session_meta", b"function_call", b"mcp_tool_call_end", b"user_message", b"token_count")
_USAGE: Final = ("input_tokens", "cached_input_tokens", "output_tokens")
_COPYING_SECONDS: Final = 1.0
"""A fork begins with what its origin has, written down at once and with the time of that; no model answers so soon."""


def outcome_of_output(output: Any) -> CallOutcome:
    """Detect failures in the model's input where Codex wrote nothing else; not every failure can be detected."""
    result = output
    if isinstance(output, str):
        result = output.partition("\nOutput:\n")[2] if output.startswith("Wall time:") else output
        if result.startswith(("{", "[")):
            try:
                result = reading.decode_json(result.encode())
            except (msgspec.MsgspecError, RecursionError):
                return CallOutcome.DONE  # it is cut, as long results are
    match result:
        case str(text) | [{"text": str(text)}, *_] | {"content": [{"text": str(text)}, *_]}:
            if text.startswith(_NOT_RUN):
                return CallOutcome.NOT_RUN
    match result:
        case {"isError": True} | {"is_error": True}:
            return CallOutcome.FAILED
        case _:
            return CallOutcome.DONE


def _read_file(file: Path, advance: Advance) -> Iterator[TranscriptEvent]:
    return reading.events(file, advance, _CodexConversation(file.stem).take, _READ)


def _places(home: Path, environment: Mapping[str, str]) -> list[Path]:
    folder = Path(environment.get("CODEX_HOME") or home / ".codex")
    return [folder / "sessions", folder / "archived_sessions"]


class _CodexConversation:
    """What calls of one file wait for their results, and whose they are."""

    def __init__(self, name: str) -> None:
        self._lane = ""
        self._name = name
        self._directory = ""
        self._began = ""
        self._origin = ""
        self._copied_until = 0.0
        self._open: dict[str | None, tuple[dict[str, Any], float]] = {}
        self._totals = [0, 0, 0]

    def take(self, line: dict[str, Any]) -> list[TranscriptEvent]:
        """Return the events of a line."""
        match line.get("type"):
            case "session_meta":
                self._introduce(line["payload"], line["timestamp"])
            case "response_item" | "event_msg":
                return self._happened(line["payload"], reading.moment(line["timestamp"]))
        return []

    def _introduce(self, meta: dict[str, Any], timestamp: str) -> None:
        """Note the session of this file. After its introduction, a fork has those of the sessions it comes from."""
        id_ = meta.get("id") or ""
        if not self._lane:
            self._lane, self._began, self._directory = id_, timestamp, meta.get("cwd") or ""
        is_own = id_ == self._lane
        origin = meta.get("forked_from_id") or ("" if is_own else id_)
        if origin and not (is_own and self._origin):
            self._origin = origin
            self._copied_until = reading.moment(self._began) + _COPYING_SECONDS

    def _happened(self, payload: dict[str, Any], at: float) -> list[TranscriptEvent]:
        id_ = payload.get("call_id")
        match payload:
            case {"type": "user_message"}:
                return reading.user_message(self._lane or self._name, at, payload.get("message"))
            case {"type": "token_count", "info": dict(info)}:
                return self._requested(reading.token_counts(info.get("total_token_usage"), *_USAGE), at)
            case {"type": "function_call"} if _qualified(payload):
                self._open[id_] = (payload, at)
            case {"type": "mcp_tool_call_end", "invocation": {"server": str(server), "tool": str(tool)} as call}:
                _, began = self._open.pop(id_, (None, at - _seconds(payload.get("duration"))))
                call = self._call(id_, tool, call.get("arguments"), began, server=server)
                return reading.end_call(call, at, _outcome(payload.get("result")))
            case {"type": "function_call_output"} if id_ in self._open:
                call, began = self._open.pop(id_)
                given = msgspec.Raw((call.get("arguments") or "{}").encode())
                begun = self._call(id_, _qualified(call), given, began)
                return reading.end_call(begun, at, outcome_of_output(payload.get("output")))
        return []

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

    def _call(self, id_: str | None, name: str, given: Any, began: float, **others: Any) -> TranscriptCall:
        lane = self._lane or self._name
        others |= {"is_copy": began <= self._copied_until, "directory": self._directory}
        return reading.begin_call(lane, f"{self._origin or lane}/{id_}", name, given, began, **others)


def _qualified(call: dict[str, Any]) -> str:
    """Return the name of an MCP tool with its server's; empty for any other function."""
    name, namespace = call.get("name") or "", call.get("namespace")
    whole = f"{namespace.removesuffix(_SEPARATOR)}{_SEPARATOR}{name}" if namespace else name
    return whole.removeprefix(_PREFIX) if whole.startswith(_PREFIX) else ""


def _seconds(duration: Any) -> float:
    match duration:
        case {"secs": int(whole), "nanos": int(rest)}:
            return whole + rest / 1e9
        case _:
            return 0.0


def _outcome(result: Any) -> CallOutcome:
    match result:
        case {"Ok": {"isError": True}}:
            return CallOutcome.FAILED
        case {"Err": _}:
            return CallOutcome.NOT_RUN
        case _:
            return CallOutcome.DONE


CODEX: Final = TranscriptSource(
    client="codex",
    introduces_itself="codex-mcp-client",
    separator=_SEPARATOR,
    pattern="rollout-*.jsonl",
    places=_places,
    is_head=lambda head: b'"session_meta"' in head,
    read=_read_file,
)
"""Codex; versions that record the end of MCP calls name server and tool, older ones have both in the function name."""


_ENDING: Final = ".messages.json"
_ASKED: Final = re.compile(r"<user_input\b[^>]*>(.*?)</user_input>", re.DOTALL)
"""What the user wrote; the client adds notices and files next to it."""


def _read_cline(file: Path, advance: Advance) -> Iterator[TranscriptEvent]:
    """Yield the events of a file, which is one JSON value: what is reported as a line is a message."""
    text = file.read_bytes()
    advance(len(text))
    yield from reading.take_safely(0, _session_events, file.name.removesuffix(_ENDING), text)


def _session_events(name: str, text: bytes) -> Iterator[TranscriptEvent]:
    session = reading.decode_json(text)
    lane = session.get("sessionId") or name
    if name != lane:
        lane = f"{lane}/{name}"
    pending: dict[str | None, TranscriptCall] = {}
    for number, message in enumerate(session["messages"], 1):
        yield from reading.take_safely(number, _message_events, lane, pending, message)


def _message_events(
    lane: str, pending: dict[str | None, TranscriptCall], message: dict[str, Any]
) -> list[TranscriptEvent]:
    content, stamp = message.get("content", ""), message.get("ts", 0.0)
    blocks = [{"text": content}] if isinstance(content, str) else content
    at, found = stamp / 1000, []
    if message.get("role") == "user":
        found += reading.user_message(lane, at, _ASKED.findall(reading.text_of(blocks)))
    for block in blocks:
        match block:
            case {"type": "tool_use", "name": str(name)} if _SEPARATOR in name:
                identity = f"{block.get('id')}/{stamp:.0f}"
                pending[block.get("id")] = reading.begin_call(lane, identity, name, block.get("input"), at)
            case {"type": "tool_result"}:
                outcome = CallOutcome.NOT_RUN if block.get("is_error") else outcome_of_output(block.get("content"))
                found += reading.end_call(pending.pop(block.get("tool_use_id"), None), at, outcome)
    return found


CLINE: Final = TranscriptSource(
    client="cline",
    introduces_itself="@cline/core",
    separator=_SEPARATOR,
    pattern=f"*{_ENDING}",
    places=lambda home, _: [home / ".cline" / "data" / "sessions"],
    is_head=lambda head: head == b"{",
    read=_read_cline,
)
"""Cline as a program, not as an extension of an editor; each agent is a separate conversation."""
