"""Pinned tool definitions: what a server's tools said when they were approved, and what they say now."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from itertools import chain
from math import ceil
from operator import itemgetter
from typing import Any, Final, Literal

from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Raw

OnChange = Literal["note", "hold", "block"]
"""What riglm does when a tool is not as it was approved.

`note` reports it. `hold` also keeps the approved definition in lists, leaves out added tools, and refuses calls of
both. `block` refuses and leaves out all tools of the server.
"""


class ToolChange(StrEnum):
    """How a tool differs from what was approved."""

    CHANGED = "changed"
    ADDED = "added"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPin:
    """One tool of a server, by the server's own name for it.

    `digest` and `definition` are what was approved, the latter as raw JSON: both are empty for a tool that was added
    later, and only `definition` is for an imported digest that no server has matched yet. `seen_digest` and `seen` are
    what the server listed last, empty if it never did. `resembles` names the pinned tool, as `SERVER/TOOL`, that an
    added tool resembles. Times are in seconds since the epoch.
    """

    server: str
    name: str
    digest: str
    definition: bytes
    seen_digest: str
    seen: bytes
    resembles: str = ""
    pinned_at: float
    seen_at: float

    @property
    def change(self) -> ToolChange | None:
        """How the tool differs from what was approved, None if it does not."""
        if self.seen_digest in {"", self.digest}:
            return None
        return ToolChange.CHANGED if self.digest else ToolChange.ADDED


_PINNED_MEMBERS: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")

_PINNED_NAMES: Final = tuple(f'"{name}"'.encode() for name in _PINNED_MEMBERS)
_FOLDED_MEMBERS: Final = frozenset(name.casefold() for name in _PINNED_MEMBERS)


def definition_digest(raw: Raw) -> str:
    """Return the SHA-256, in hexadecimal, of what models and clients read of a definition.

    These are its name, title, description, schemas and annotations, regardless of the order of members and the
    spelling of strings. A member that is repeated, or there in another case as well, counts, and so does the order of
    repeated ones, since parsers differ in which one they take.
    """
    fields = jsonrpc.members(raw)
    is_ambiguous = any(name not in _PINNED_MEMBERS and name.casefold() in _FOLDED_MEMBERS for name in fields)
    if is_ambiguous or jsonrpc.repeated(bytes(raw), _PINNED_NAMES) is not None:
        return sha256(bytes(raw)).hexdigest()
    told = (f"{name}:{_canonical(fields[name])}" for name in _PINNED_MEMBERS if name in fields)
    return sha256("\n".join(told).encode()).hexdigest()


class _Canonical(str):
    """JSON text that is canonical already."""

    __slots__ = ()


def _canonical(raw: Raw) -> str:
    try:
        return _text(json.loads(bytes(raw), object_pairs_hook=_object))
    except (ValueError, RecursionError):
        return sha256(bytes(raw)).hexdigest()


def _object(pairs: Sequence[tuple[str, Any]]) -> _Canonical:
    """Sorts members by name; those of one name keep their order, since parsers differ in which one they take."""
    members = sorted(((json.dumps(name), _text(value)) for name, value in pairs), key=itemgetter(0))
    return _Canonical("{" + ",".join(f"{name}:{value}" for name, value in members) + "}")


def _text(value: Any) -> str:
    if isinstance(value, _Canonical):
        return value
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return json.dumps(value)


def definition_diff(pin: ToolPin) -> list[str]:
    """Return the lines of a unified diff from the approved definition to the one last seen, in printable ASCII."""
    import difflib  # noqa: PLC0415  # a process without changes does not load it

    return list(difflib.unified_diff(_lines(pin.definition), _lines(pin.seen), "approved", "seen", lineterm="", n=2))


def _lines(raw: bytes) -> list[str]:
    if not raw:
        return []
    fields = jsonrpc.members(Raw(raw))
    return json.dumps(
        {name: jsonrpc.plain(fields[name]) for name in _PINNED_MEMBERS if name in fields}, indent=2, sort_keys=True
    ).splitlines()


_MIN_WORDS: Final = 6
_MIN_OVERLAP: Final = 0.8
_MAX_COMPARED: Final = 64
_WORD: Final = re.compile(r"\w+")


class KnownTexts:
    """The schemas and words of pinned tools, to recognize them under other names.

    Texts with four fifths of their words in common share one of the rarest fifth of each one's words, so only tools
    that do are compared (prefix filtering, Chaudhuri et al., A Primitive Operator for Similarity Joins, 2006).
    """

    def __init__(self, pins: Iterable[ToolPin]) -> None:
        """`pins` are those of all servers that are compared."""
        self._known = [(pin, *_schema_and_words(pin.definition or pin.seen)) for pin in pins]
        self._frequency = Counter(word for _, _, words in self._known for word in words)
        self._by_word: defaultdict[str, list[int]] = defaultdict(list)
        self._by_schema: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for number, (pin, schema, words) in enumerate(self._known):
            for word in self._rarest(words):
                self._by_word[word].append(number)
            if schema:
                self._by_schema[pin.server, schema].append(number)

    def resembled(self, server: str, name: str, raw: Raw) -> str:
        """Return the pinned tool, as `SERVER/TOOL`, that a tool new to `server` resembles; empty if there is none.

        A tool resembles a different tool of its server with an equal schema that has properties, and any tool with four
        fifths of the distinct words of both descriptions in common. At most `_MAX_COMPARED` tools are compared.
        """
        schema, words = _schema_and_words(raw)
        alike = self._by_schema.get((server, schema), [])[:2]  # the second one if the first is this tool itself
        compared = set(alike)
        for number in chain.from_iterable(self._by_word.get(word, ()) for word in self._rarest(words)):
            compared.add(number)
            if len(compared) >= _MAX_COMPARED:
                break
        best, found = 0.0, ""
        for number in sorted(compared):
            pin, other_schema, other_words = self._known[number]
            if (pin.server, pin.name) == (server, name):
                continue
            overlap = 0.0
            if len(words | other_words) >= _MIN_WORDS:
                overlap = len(words & other_words) / len(words | other_words)
            if schema and schema == other_schema and pin.server == server:
                overlap = max(overlap, _MIN_OVERLAP)
            if overlap >= _MIN_OVERLAP and overlap > best:
                best, found = overlap, f"{pin.server}/{pin.name}"
        return found

    def _rarest(self, words: frozenset[str]) -> list[str]:
        """Return the words of which a text must share one with each text that it resembles, rarest first."""
        ranked = sorted(words, key=lambda word: (self._frequency[word], word))
        return ranked[: len(words) - ceil(_MIN_OVERLAP * len(words)) + 1]


def _schema_and_words(raw: bytes) -> tuple[str, frozenset[str]]:
    """Return the canonical input schema, empty if it has no properties, and the words of the description."""
    fields = jsonrpc.members(Raw(raw)) if raw else {}
    schema = fields.get("inputSchema", Raw(b"{}"))
    has_properties = bool(jsonrpc.members(jsonrpc.members(schema).get("properties", Raw(b"{}"))))
    words = _WORD.findall((jsonrpc.text(fields.get("description")) or "").lower())
    return _canonical(schema) if has_properties else "", frozenset(words)
