"""Turns: a session's calls between one thing that its user asked for and the next."""

from collections.abc import Iterable
from typing import Final

from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Raw
from riglm.domain.session_state import SessionState

_TRACE: Final = "traceparent"


def turn_key(meta: Raw | bytes, keys: Iterable[str]) -> str:
    """Return the turn key of a call's raw `_meta`; empty if it has none.

    The first of `keys` that is there counts. Of a `traceparent` only the trace is of the turn, the rest is of the call.
    """
    if not meta:
        return ""
    fields = jsonrpc.members(meta)
    for key in keys:
        value = jsonrpc.text(fields.get(key))
        if value:
            return f"{key}={_trace_of(value) if key == _TRACE else value}"
    return ""


def _trace_of(value: str) -> str:
    parts = value.split("-")
    return parts[1] if len(parts) > 1 else value


def begins_turn(state: SessionState, key: str, at: float, pause: float) -> bool:
    """Whether a call at the time `at` is the first of a turn: it has a new key, or came after a pause, in seconds.

    A session's first key names the turn that it is in, and begins none.
    """
    if key and state.turn_key and key != state.turn_key:
        return True
    return bool(state.last_at) and at - state.last_at > pause


def begin_turn(state: SessionState) -> None:
    """Count a new turn."""
    state.turn += 1


def used_lately(state: SessionState, turns: int) -> set[str]:
    """Return the tools that were used in the last `turns` turns, this one among them."""
    return {tool for tool, turn in state.used_in_turn.items() if state.turn - turn < turns}
