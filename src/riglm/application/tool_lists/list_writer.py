"""The entries of a list, and arguments and results of meta-tools, as raw JSON."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from riglm.application.tool_lists.selection import ListSelection
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Raw
from riglm.domain.tool import BYTES_PER_TOKEN, ToolCatalog

SET_CONTEXT: Final = "set_context"
SEARCH: Final = "search_available_tools"
CALL_TOOL: Final = "call_tool"
INDEX_STATUS: Final = "index_status"
MARK_TOOL: Final = "mark_tool"

_TEXT: Final = {"type": "string"}
_READ_ONLY: Final = {"annotations": {"readOnlyHint": True}}


def _definition(name: str, description: str, properties: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if properties:
        schema["required"] = [key for key in properties if key != "arguments"]
    return {"name": name, "description": description, "inputSchema": schema, **more}


_DEFINITIONS: Final = (
    _definition(
        SEARCH,
        "Find tools that are not listed. Search before you conclude that no tool can do something.",
        {"query": {**_TEXT, "description": "What the tool should do, or its name"}},
        **_READ_ONLY,
    ),
    _definition(CALL_TOOL, "Call any tool by name, listed or not.", {"name": _TEXT, "arguments": {"type": "object"}}),
    _definition(
        SET_CONTEXT,
        "Get the tools for a task. Call it once when a new task begins.",
        {"context": {**_TEXT, "description": "The task in a sentence"}},
        **_READ_ONLY,
    ),
    _definition(
        MARK_TOOL,
        "Report whether a tool was useful for the current task.",
        {"name": _TEXT, "relevant": {"type": "boolean"}},
    ),
    _definition(INDEX_STATUS, "Get the state of the search index and how to phrase searches.", {}, **_READ_ONLY),
)

NAMES: Final = tuple(str(each["name"]) for each in _DEFINITIONS)
"""The names of all meta-tools, in the order in which they are listed."""


def definitions(names: Collection[str], index: str = "") -> dict[str, bytes]:
    """Return the raw definitions of meta-tools in their order; `index` names what the search can find."""
    found = {each["name"]: dict(each) for each in _DEFINITIONS if each["name"] in names}
    if index and SEARCH in found:
        found[SEARCH]["description"] += f" Hidden tools: {index}"
    return {name: jsonrpc.encode(each) for name, each in found.items()}


ALWAYS_LOAD: Final = ("_meta", "anthropic/alwaysLoad")
"""The preload hint of a definition."""


def some_entries(
    catalog: ToolCatalog, names: frozenset[str], meta_tools: Mapping[str, bytes], *, search_first: bool, has_hints: bool
) -> bytes:
    """Return the entries of some tools in the catalog's order, and the definitions of the meta-tools.

    With `search_first` the search comes before the tools, otherwise all meta-tools come after them. With `has_hints`,
    each entry has a preload hint.
    """
    first = [meta_tools[SEARCH]] if search_first and SEARCH in meta_tools else []
    last = [raw for raw in meta_tools.values() if raw not in first]
    entries = [*first, *(tool.raw for tool in catalog.tools if tool.name in names), *last]
    if has_hints:
        entries = [jsonrpc.with_member(Raw(entry), ALWAYS_LOAD, b"true") for entry in entries]
    return b"[%b]" % b",".join(entries)


def marked_entries(catalog: ToolCatalog, names: frozenset[str], warm: frozenset[str]) -> bytes:
    """The entries of some tools and those without a name; of each warm name the first one has a mark."""

    def entries() -> Iterable[bytes]:
        for raw, tool in catalog.entries():
            if tool is None:
                yield bytes(raw)
            elif tool.name in names:
                marks = tool.name in warm and tool is catalog.by_name[tool.name]
                yield jsonrpc.with_member(raw, ALWAYS_LOAD, b"true") if marks else bytes(raw)

    return b"[%b]" % b",".join(entries())


_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_a-zA-Z]+")
_SEPARATOR: Final = re.compile(r"__|[-./:]")
_ACTIONS: Final = frozenset(
    re.findall(
        r"\w+",
        "a add all and append apply batch by call cancel change check clear close convert copy count create delete "
        "describe do download edit execute export extract fetch find for from generate get has import in info insert "
        "is list load make manage merge move new of on open post put query read remove rename replace request reset "
        "resolve retrieve run save search select send set show sort start stop submit sync to toggle tool update "
        "upload upsert use validate view with write",
    )
)
"""Words of tool names that name an action, not a kind of tool."""

_MAX_KINDS: Final = 12

INDEX_TOKENS: Final = 100
"""Tokens of the index up to which names of tools pay.

All names are in the prompt of every request, and a name saves something only in the few sessions that need its tool
and would not search for it: more names than the kinds of tools take cost more than they save.
"""

OwnerOf = Callable[[str], tuple[str, str]]
"""Returns the server of a tool and the tool's name there, given the name that clients use."""


def hidden_index(hidden: Sequence[str], owner: OwnerOf, max_tokens: int) -> str:
    """Return the index of hidden tools, of at most `max_tokens` estimated tokens; empty if none is hidden.

    It has the names of the tools, or if they take more than `INDEX_TOKENS` the servers with the number of their tools
    and as many kinds of tools as fit into these tokens.
    """
    most = max_tokens * BYTES_PER_TOKEN
    size = min(most, INDEX_TOKENS * BYTES_PER_TOKEN)
    servers = _group(map(owner, hidden))
    index = "; ".join(f"{server}: {', '.join(names)}" for server, names in servers.items())
    if len(servers) == 1:
        [names] = servers.values()
        index, servers = ", ".join(names), _group(map(_split_prefix, names))
        if len(servers) == 1:
            servers = {"tools": next(iter(servers.values()))}
    if _length(index) > size:
        index = _summarize(servers, size, most)
    return index if _length(index) <= most else ""


def _group(names: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for label, name in names:
        groups.setdefault(label, []).append(name)
    return groups


def _split_prefix(name: str) -> tuple[str, str]:
    """Return the part of a name before the first separator, and the rest."""
    head, *rest = _SEPARATOR.split(name, maxsplit=1)
    return (head or "others", rest[0]) if rest else ("others", name)


def _summarize(groups: Mapping[str, Sequence[str]], size: int, most: int) -> str:
    """Return every group with its number of tools, and with as many kinds of tools as fit into `size` bytes.

    If the groups alone take more than `most` bytes, the last ones are only counted.
    """
    parts = {label: f"{label} ({len(names)}" for label, names in groups.items()}
    summary = _join([f"{part})" for part in parts.values()], most)
    kinds = {label: _find_kinds(label, names) for label, names in groups.items()}
    for place in range(_MAX_KINDS):
        for label, words in kinds.items():
            if place < len(words):
                parts[label] += f"{', ' if place else ': '}{words[place]}"
                longer = "; ".join(f"{part})" for part in parts.values())
                if _length(longer) > size:
                    return summary
                summary = longer
    return summary


def _join(parts: Sequence[str], size: int) -> str:
    """Return the parts that fit, and the number of the others."""
    length = 0
    for place, part in enumerate(parts):
        length += _length(part) + 2
        rest = f"and {len(parts) - place} more servers"
        if length + (len(rest) if place + 1 < len(parts) else 0) > size:
            return "; ".join([*parts[:place], rest])
    return "; ".join(parts)


def _find_kinds(label: str, names: Sequence[str]) -> list[str]:
    """Return the words that most names of a group have, without verbs."""
    known = {word.lower() for word in _WORD.findall(label)}
    ignored = _ACTIONS | known | {_singular(word) for word in known}
    found = (word for name in names for word in {_singular(each.lower()) for each in _WORD.findall(name)} - ignored)
    counts = Counter(word for word in found if len(word) > 1)
    return sorted(counts, key=lambda word: (-counts[word], word))[:_MAX_KINDS]


def _singular(word: str) -> str:
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def _length(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


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


def text_result(fields: Mapping[str, Any], *, is_error: bool = False) -> bytes:
    """Return a raw result whose text content is an object of plain and raw values, each included once."""
    return _result(jsonrpc.encode(fields).decode("utf-8", "replace"), is_error=is_error)


def refused(words: str) -> MetaToolResult:
    """Return an error result with a message."""
    return MetaToolResult(result=_result(words, is_error=True))


def _result(text: str, *, is_error: bool) -> bytes:
    return jsonrpc.encode({"content": [{"type": "text", "text": text}]} | ({"isError": True} if is_error else {}))


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


def unknown_tool_message(name: str, found: Sequence[str]) -> str:
    """Return the message for a name that call_tool cannot call, with the names of the tools that match it.

    Small models copy the example; without one, they call the tools by their names, which clients refuse.
    """
    if not found:
        return f"Unknown tool: {name}. Search for what the tool should do."
    example = f'{{"name": "{CALL_TOOL}", "arguments": {{"name": "{found[0]}", "arguments": {{}}}}}}'
    return f"Unknown tool: {name}. Call one of these with {CALL_TOOL}, for example {example}: {', '.join(found)}."


def search_message(*, found: bool, is_close: bool, has_meaning: bool, how: str) -> str:
    """Return the message of a search result; without `has_meaning` the tools were compared by words only so far."""
    if found and not is_close:
        how = f"These tools come nearest; check whether they do what you need. {how}"
    if found:
        return how if has_meaning else f"{how} The index of meanings is still being built: later searches find more."
    if not has_meaning:
        return "No tool shares these words, and the index of meanings is still loading. Search again in a few seconds."
    return "No tool matches. Search in other words if you think that there is one."
