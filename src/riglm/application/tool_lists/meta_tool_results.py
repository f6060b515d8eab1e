"""Arguments and results of meta-tools, as raw JSON."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from riglm.application.tool_lists.list_writer import CALL_TOOL, SEARCH
from riglm.application.tool_lists.selection import ListSelection
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Raw

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaToolResult:
    """The result of a call of a meta-tool.

    `result` is a raw CallToolResult, without what an era adds to every result. Where `forward` is set there is none:
    the call must be forwarded to the tool of that raw name with those raw arguments, like a call by the client, which
    may be denied, and to an upstream even if the name is that of a meta-tool. `list_changed` is True if the session's
    list has changed, and `selection` are the tools that the result contains.
    """

    result: bytes = b""
    list_changed: bool = False
    forward: tuple[bytes, bytes] | None = None
    selection: ListSelection | None = None


_EXPECTED: Final[Mapping[type, str]] = {
    str: "a text that is not empty",
    bool: "true or false",
    dict: "an object that matches the schema of the called tool",
}


class InvalidArgumentsError(Exception):
    """Raised for arguments that cannot be parsed; the text contains what is expected."""


def read_arguments(tool: str, arguments: bytes) -> dict[str, Raw]:
    """Return the arguments of a call by name.

    Raises:
        InvalidArgumentsError: they are no object.
    """
    if arguments.strip() and not isinstance(jsonrpc.plain(arguments), dict):
        raise InvalidArgumentsError(f"{tool} expects an object of arguments.")
    return jsonrpc.members(arguments)


def read_argument(tool: str, given: Mapping[str, Raw], key: str, kind: type[T]) -> T:
    """Return an argument of a kind.

    Raises:
        InvalidArgumentsError: it is missing, of another kind, or blank.
    """
    value = jsonrpc.plain(given.get(key, b"null"))
    if not isinstance(value, kind) or not str(value).strip():
        raise InvalidArgumentsError(f"{tool} expects `{key}` to be {_EXPECTED[kind]}.")
    return value


def read_object(tool: str, given: Mapping[str, Raw], key: str) -> bytes:
    """Return a raw object among the arguments, unchanged; an empty one if it is missing or null.

    Models write objects as text at times: such a text is taken for the object in it.

    Raises:
        InvalidArgumentsError: it is something else.
    """
    raw = bytes(given.get(key, b"null"))
    text = jsonrpc.text(raw)
    raw = raw if text is None else text.encode("utf-8", "replace")
    if raw.strip() == b"null":
        return b"{}"
    read_argument(tool, {key: Raw(raw)}, key, dict)
    return raw


def text_result(fields: Mapping[str, Any]) -> bytes:
    """Return a raw result whose text content is an object of plain and raw values, each included once."""
    text = jsonrpc.encode(fields).decode("utf-8", "replace")
    return jsonrpc.encode({"content": [{"type": "text", "text": text}]})


def refused(words: str) -> MetaToolResult:
    """Return an error result with a message."""
    return MetaToolResult(result=jsonrpc.encode({"content": [{"type": "text", "text": words}], "isError": True}))


def how_to_call(offered: Collection[str]) -> str:
    """Return how found tools are called while these meta-tools are listed: hosts refuse names that are not."""
    return "Call tools that are not listed with call_tool." if CALL_TOOL in offered else "Call them by name."


def context_message(
    *, has_tools: bool, changed: bool, offered: Collection[str], has_meaning: bool, is_whole: bool
) -> str:
    """Return the message of a set_context result; `is_whole` is True if the list hides nothing.

    `offered` are the listed meta-tools. Without `has_meaning` the vectors of some tools were missing.
    """
    parts = ["Your tool list has changed." if changed else "Your tool list is unchanged."]
    if has_tools:
        parts.append(f"These tools are likely needed in addition. {how_to_call(offered)}")
    elif is_whole:
        parts.append("It has every tool.")
    elif SEARCH in offered:
        parts.append("Search for tools that it lacks.")
    if not (has_meaning or is_whole):
        parts.append("The index of meanings is still being built: set the context again later to get more tools.")
    return " ".join(parts)


def search_message(*, found: bool, is_close: bool, has_meaning: bool, how: str) -> str:
    """Return the message of a search result; without `has_meaning` the tools were compared by words only so far."""
    if found and not is_close:
        how = f"These tools come nearest; check whether they do what you need. {how}"
    if found:
        return how if has_meaning else f"{how} The index of meanings is still being built: later searches find more."
    if not has_meaning:
        return "No tool shares these words, and the index of meanings is still loading. Search again in a few seconds."
    return "No tool matches. Search in other words if you think that there is one."
