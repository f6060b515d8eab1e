"""What else a message could say to a reader who does not mind the case of keys."""

from collections.abc import Iterable
from typing import Final

from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message

_READ: Final = frozenset({"id", "method", "params"})
_READ_OF_CALLS: Final = frozenset({"name"})


def disguised_key(message: Message) -> str | None:
    """A key that some servers take for one that riglm goes by, such as `Method` or `Name`; None when there is none."""
    keys = _mistakable(jsonrpc.members(message.line), _READ)
    if not keys and message.params:
        keys = _mistakable(jsonrpc.members(message.params), _READ_OF_CALLS)
    return keys[0] if keys else None


def _mistakable(keys: Iterable[str], read: frozenset[str]) -> list[str]:
    return [key for key in keys if key not in read and key.casefold() in read]
