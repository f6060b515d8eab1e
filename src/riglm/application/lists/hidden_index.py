"""The index of hidden tools in the description of the search: names by server while they fit, otherwise kinds."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from riglm.domain.tokens import BYTES_PER_TOKEN

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")
_SEPARATOR: Final = re.compile(r"__|[-./:]")
_ACTION: Final = re.compile(
    r"a|add|all|and|append|apply|batch|by|call|cancel|change|check|clear|close|convert|copy|count|create|delete|"
    r"describe|do|download|edit|execute|export|extract|fetch|find|for|from|generate|get|has|import|in|info|insert|is|"
    r"list|load|make|manage|merge|move|new|of|on|open|post|put|query|read|remove|rename|replace|request|reset|resolve|"
    r"retrieve|run|save|search|select|send|set|show|sort|start|stop|submit|sync|to|toggle|tool|update|upload|upsert|"
    r"use|validate|view|with|write"
)
"""Words of tool names that name an action, not a kind of tool."""

_MAX_KINDS: Final = 12

OwnerOf = Callable[[str], tuple[str, str]]
"""Returns the server of a tool and the tool's name there, given the name that clients use."""


def hidden_index(hidden: Sequence[str], owner: OwnerOf, max_tokens: int) -> str:
    """Return the index of hidden tools, of at most `max_tokens` estimated tokens; empty if none is hidden."""
    servers: dict[str, list[str]] = {}
    for name in hidden:
        server, own = owner(name)
        servers.setdefault(server, []).append(own)
    size = max_tokens * BYTES_PER_TOKEN
    if len(servers) == 1:
        [names] = servers.values()
        if _length(", ".join(names)) <= size:
            return ", ".join(names)
        servers = _by_prefix(names)
    index = "; ".join(f"{server}: {', '.join(names)}" for server, names in servers.items())
    if _length(index) > size:
        index = _kinds(servers, size)
    return index if _length(index) <= size else ""


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
    """Return every group with its number of tools, and with as many kinds of tools as there is room for."""
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
    counts: Counter[str] = Counter()
    for name in names:
        words = {_singular(word.lower()) for word in _WORD.findall(name)}
        counts.update(
            word
            for word in words
            if len(word) > 1 and not word.isdigit() and not _ACTION.fullmatch(word) and word not in known
        )
    return [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_MAX_KINDS]]


def _singular(word: str) -> str:
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def _length(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
