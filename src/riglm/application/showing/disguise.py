"""What else a message could say to other readers, who do not mind the case of keys or go by the first of two."""

from collections.abc import Iterable
from typing import Final

from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message
from riglm.domain.tool import Tool

_READ: Final = frozenset({"id", "method", "params"})
_READ_OF_CALLS: Final = frozenset({"name"})


def disguised_key(message: Message) -> str | None:
    """A key that some servers take for one that riglm goes by, such as `Method` or `Name`; None when there is none."""
    keys = _mistakable(jsonrpc.members(message.line), _READ)
    if not keys and message.params:
        keys = _mistakable(jsonrpc.members(message.params), _READ_OF_CALLS)
    return keys[0] if keys else None


def has_one_name(tool: Tool) -> bool:
    """Whether a listed tool has the same name for every reader."""
    if _mistakable(jsonrpc.members(tool.raw), _READ_OF_CALLS):
        return False
    try:
        return jsonrpc.repeated(bytes(tool.raw), (b'"name"',)) is None
    except jsonrpc.Malformed:
        return False


def _mistakable(keys: Iterable[str], read: frozenset[str]) -> list[str]:
    return [key for key in keys if key not in read and key.casefold() in read]
