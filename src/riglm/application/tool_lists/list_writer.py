"""The entries of a list as raw JSON: the upstream's own bytes, with riglm's tools and marks where they belong."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Raw
from riglm.domain.tool import BYTES_PER_TOKEN, ToolCatalog

SET_CONTEXT: Final = "set_context"
SEARCH: Final = "search_available_tools"
CALL_TOOL: Final = "call_tool"
INDEX_STATUS: Final = "index_status"
MARK_TOOL: Final = "mark_tool"

NAMES: Final = (SEARCH, CALL_TOOL, SET_CONTEXT, MARK_TOOL, INDEX_STATUS)
"""The names of all meta-tools, in the order in which they are listed."""

_TEXT: Final = {"type": "string"}
_READ_ONLY: Final = {"readOnlyHint": True}


def _definition(
    description: str, properties: Mapping[str, Any], annotations: Mapping[str, bool] | None = None
) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": dict(properties)}
    if properties:
        schema["required"] = [name for name in properties if name != "arguments"]
    return {"description": description, "inputSchema": schema, **({"annotations": annotations} if annotations else {})}


_DEFINITIONS: Final = {
    SEARCH: _definition(
        "Find tools that are not listed. Search before you conclude that no tool can do something.",
        {"query": {**_TEXT, "description": "What the tool should do, or its name"}},
        _READ_ONLY,
    ),
    CALL_TOOL: _definition("Call any tool by name, listed or not.", {"name": _TEXT, "arguments": {"type": "object"}}),
    SET_CONTEXT: _definition(
        "Get the tools for a task. Call it once when a new task begins.",
        {"context": {**_TEXT, "description": "The task in a sentence"}},
        _READ_ONLY,
    ),
    MARK_TOOL: _definition(
        "Report whether a tool was useful for the current task.", {"name": _TEXT, "relevant": {"type": "boolean"}}
    ),
    INDEX_STATUS: _definition("Get the state of the search index and how to phrase searches.", {}, _READ_ONLY),
}


def definitions(names: Collection[str], index: str = "") -> dict[str, bytes]:
    """Return the raw definitions of meta-tools in their order; `index` names what the search can find."""
    found = {}
    for name in NAMES:
        if name in names:
            given = _DEFINITIONS[name]
            if name == SEARCH and index:
                given = {**given, "description": f"{given['description']} Hidden tools: {index}"}
            found[name] = jsonrpc.encode({"name": name, **given})
    return found


ALWAYS_LOAD: Final = ("_meta", "anthropic/alwaysLoad")
"""The preload hint of a definition."""


def some_entries(
    catalog: ToolCatalog,
    names: frozenset[str],
    meta_tools: Mapping[str, bytes],
    *,
    search_first: bool = False,
    has_hints: bool = False,
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


_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")
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
    servers: dict[str, list[str]] = {}
    for name in hidden:
        server, own = owner(name)
        servers.setdefault(server, []).append(own)
    most = max_tokens * BYTES_PER_TOKEN
    size = min(most, INDEX_TOKENS * BYTES_PER_TOKEN)
    if len(servers) == 1:
        [names] = servers.values()
        if _length(", ".join(names)) <= size:
            return ", ".join(names)
        servers = _by_prefix(names)
    index = "; ".join(f"{server}: {', '.join(names)}" for server, names in servers.items())
    if _length(index) > size:
        counts = _written(servers, {label: [] for label in servers}, most)
        index = counts if _length(counts) >= size else _kinds(servers, size)
    return index if _length(index) <= most else ""


def _by_prefix(names: Sequence[str]) -> dict[str, list[str]]:
    """Group the names of one server by the part before the first separator, or else by their first word."""
    groups: dict[str, list[str]] = {}
    for name in names:
        head, *rest = _SEPARATOR.split(name, maxsplit=1)
        groups.setdefault(head if rest else "", []).append(rest[0] if rest else name)
    if len(groups) > 1:
        return {label or "others": members for label, members in groups.items()}
    return {"tools": next(iter(groups.values()), [])}


def _kinds(groups: Mapping[str, Sequence[str]], size: int) -> str:
    """Return every group with its number of tools, and with as many kinds of tools as fit."""
    kinds = {label: _words(label, names) for label, names in groups.items()}
    shown: dict[str, list[str]] = {label: [] for label in groups}
    best = _written(groups, shown, size)
    for place in range(_MAX_KINDS):
        for label, words in kinds.items():
            if place < len(words):
                shown[label].append(words[place])
                text = _written(groups, shown, size)
                if _length(text) > size:
                    return best
                best = text
    return best


def _written(groups: Mapping[str, Sequence[str]], shown: Mapping[str, Sequence[str]], size: int) -> str:
    parts = [
        f"{label} ({len(names)}{': ' if shown[label] else ''}{', '.join(shown[label])})"
        for label, names in groups.items()
    ]
    if any(shown.values()):
        return "; ".join(parts)
    written: list[str] = []
    length = 0
    for place, part in enumerate(parts):
        length += _length(part) + 2
        rest = f"and {len(parts) - place} more servers"
        if length + (len(rest) if place + 1 < len(parts) else 0) > size:
            return "; ".join([*written, rest])
        written.append(part)
    return "; ".join(written)


def _words(label: str, names: Sequence[str]) -> list[str]:
    """Return the words that most names of a group have, without verbs."""
    known = {word.lower() for word in _WORD.findall(label)}
    known |= {_singular(word) for word in known}
    counts = Counter(word for name in names for word in {_singular(each.lower()) for each in _WORD.findall(name)})
    kinds = {
        word: count
        for word, count in counts.items()
        if len(word) > 1 and not word.isdigit() and word not in _ACTIONS and word not in known
    }
    return [word for word, _ in sorted(kinds.items(), key=lambda item: (-item[1], item[0]))[:_MAX_KINDS]]


@lru_cache(maxsize=4_096)
def _singular(word: str) -> str:
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def _length(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
