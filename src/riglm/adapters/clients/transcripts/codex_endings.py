"""What became of a call of Codex."""

from typing import Any, Final

import msgspec

from riglm.adapters.clients.transcripts.lines import decoded
from riglm.ports.transcripts import Ending

_NOT_RUN: Final = (
    "unsupported call",
    "user rejected MCP tool call",
    "user cancelled MCP tool call",
    "tool call error",
    "err: ",
    "aborted by user",
)

_read: Final = msgspec.json.Decoder().decode


def by_result(result: Any) -> Ending:
    """By the result that the note of its end holds."""
    match result:
        case {"Ok": {"isError": True}}:
            return Ending.FAILED
        case {"Err": _}:
            return Ending.NOT_RUN
        case _:
            return Ending.DONE


def by_output(output: Any) -> Ending:
    """Detect failures in the model's input where Codex wrote nothing else; not every failure can be detected."""
    told = output
    if isinstance(output, str):
        told = output.partition("\nOutput:\n")[2] if output.startswith("Wall time:") else output
        if told.startswith(("{", "[")):
            try:
                told = decoded(_read, told.encode())
            except (msgspec.MsgspecError, RecursionError):
                return Ending.DONE  # it is cut, as long results are
    match told:
        case str(text) | [{"text": str(text)}, *_] | {"content": [{"text": str(text)}, *_]}:
            if text.startswith(_NOT_RUN):
                return Ending.NOT_RUN
    match told:
        case {"isError": True} | {"is_error": True}:
            return Ending.FAILED
        case _:
            return Ending.DONE
