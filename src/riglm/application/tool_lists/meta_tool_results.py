"""Arguments and results of meta-tools, as raw JSON."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from riglm.application.tool_lists.list_writer import CALL_TOOL, SEARCH
from riglm.application.tool_lists.selection import ListSelection
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Raw


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


class InvalidArgumentsError(Exception):
    """Raised for arguments that cannot be parsed; the text contains what is expected."""


def members_given(tool: str, arguments: bytes) -> dict[str, Raw]:
    """The arguments of a call by name.

    Raises:
        Misused: they are no object.
    """
    if not arguments.strip():
        return {}
    if not isinstance(jsonrpc.plain(arguments), dict):
        raise InvalidArgumentsError(f"{tool} expects an object of arguments.")
    return jsonrpc.members(arguments)


def text_given(tool: str, given: Mapping[str, Raw], key: str) -> str:
    """A text among the arguments.

    Raises:
        Misused: it is not there, no text, or blank.
    """
    value = jsonrpc.text(given.get(key))
    if value is None or not value.strip():
        raise InvalidArgumentsError(f'{tool} expects {{"{key}": "some text"}}: `{key}` is {_fault(given.get(key))}.')
    return value


def flag_given(tool: str, given: Mapping[str, Raw], key: str) -> bool:
    """A yes or no among the arguments.

    Raises:
        Misused: it is not there, or neither.
    """
    value = jsonrpc.plain(given[key]) if key in given else None
    if not isinstance(value, bool):
        raise InvalidArgumentsError(f"{tool} expects `{key}` to be true or false.")
    return value


def object_given(tool: str, given: Mapping[str, Raw], key: str) -> bytes:
    """An object among the arguments, as it came; empty when it is not there.

    Models write objects as text at times: such a text is taken for the object in it.

    Raises:
        Misused: it is something else.
    """
    raw = bytes(given.get(key, b"{}"))
    value = jsonrpc.plain(raw)
    if isinstance(value, str):
        raw = value.encode("utf-8", "replace")
        value = jsonrpc.plain(raw)
    if value is None and raw.strip() == b"null":
        return b"{}"
    if not isinstance(value, dict):
        raise InvalidArgumentsError(
            f"{tool} expects `{key}` to be an object that matches the schema of the called tool."
        )
    return raw


def text_result(fields: Mapping[str, bytes]) -> bytes:
    """Return a raw result whose text content is an object of raw members, each included once."""
    content = jsonrpc.join_object(fields)
    return b'{"content":[{"type":"text","text":%b}]}' % jsonrpc.encode(content.decode("utf-8", "replace"))


def structured_result(fields: Mapping[str, bytes]) -> bytes:
    """Return a raw result that has an object of raw members both as structured content and as text."""
    content = jsonrpc.join_object(fields)
    text = jsonrpc.encode(content.decode("utf-8", "replace"))
    return b'{"content":[{"type":"text","text":%b}],"structuredContent":%b}' % (text, content)


def refused(words: str) -> MetaToolResult:
    """Return an error result with a message."""
    return MetaToolResult(result=b'{"content":[{"type":"text","text":%b}],"isError":true}' % jsonrpc.encode(words))


def array(values: Iterable[bytes]) -> bytes:
    """A raw array of raw values."""
    return b"[%b]" % b",".join(values)


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


def _fault(raw: Raw | None) -> str:
    if raw is None:
        return "missing"
    return "empty" if jsonrpc.text(raw) is not None else "no text"
