"""Pinned tool definitions: what a server's tools said when they were approved, and what they say now."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from itertools import chain
from math import ceil, isfinite
from operator import attrgetter, itemgetter
from typing import Any, Final, Literal

import msgspec

from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Raw
from riglm.domain.rawjson import UNREADABLE

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

    @property
    def diff(self) -> list[str]:
        """Return the lines of a unified diff from the approved definition to the one last seen, in printable ASCII."""
        import difflib  # noqa: PLC0415  # a process without changes does not load it

        return list(
            difflib.unified_diff(_lines(self.definition), _lines(self.seen), "approved", "seen", lineterm="", n=2)
        )

    def with_seen(self, later: "ToolPin") -> "ToolPin":
        """Return this pin with what the server listed last, by a pin of the same tool; what is approved stays."""
        if later.seen_at < self.seen_at:
            return self
        definition = later.seen if later.seen_digest == self.digest else self.definition
        return replace(later, digest=self.digest, definition=definition, pinned_at=self.pinned_at)


def merge_pins(known: Iterable[ToolPin], recorded: Iterable[ToolPin]) -> Sequence[ToolPin]:
    """Return pins as the store has them once recorded ones are stored in addition to known ones."""
    merged = {(pin.server, pin.name): pin for pin in known}
    for pin in sorted(recorded, key=attrgetter("seen_at")):
        found = merged.get((pin.server, pin.name))
        merged[pin.server, pin.name] = pin if found is None else found.with_seen(pin)
    return list(merged.values())


_PINNED_MEMBERS: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")

_PINNED_NAMES: Final = tuple(f'"{name}"'.encode() for name in _PINNED_MEMBERS)
_FOLDED_MEMBERS: Final = frozenset(name.casefold() for name in _PINNED_MEMBERS)

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def definition_digest(raw: Raw) -> str:
    """Return the SHA-256, in hexadecimal, of what models and clients read of a definition.

    These are its name, title, description, schemas and annotations, regardless of the order of members and the
    spelling of strings. A member that is repeated, or there in another case as well, counts, and so does the order of
    repeated ones, since parsers differ in which one they take.
    """
    definition = bytes(raw)
    value = _plain_object(definition)
    fields: Mapping[str, Any] = jsonrpc.members(raw) if value is None else value
    is_ambiguous = any(name not in _PINNED_MEMBERS and name.casefold() in _FOLDED_MEMBERS for name in fields)
    if is_ambiguous or (value is None and jsonrpc.repeated(definition, _PINNED_NAMES) is not None):
        return sha256(definition).hexdigest()
    if value is not None:
        canonical = _encode({name: value[name] for name in _PINNED_MEMBERS if name in value})
    else:
        canonical = _canonical(jsonrpc.join_object({name: fields[name] for name in _PINNED_MEMBERS if name in fields}))
    return sha256(canonical).hexdigest()


def _plain_object(raw: bytes) -> dict[str, Any] | None:
    """Decode an object in which no member can be repeated; None for any other, which takes ten times as long to read.

    Each member has `":` once unless there is a blank or an escape, and a repeated member is lost in decoding.
    """
    if b" :" in raw or b"\n:" in raw or b"\r:" in raw or b"\t:" in raw or b"\\u00" in raw:
        return None
    try:
        value = _decode(raw)
        is_equal = isinstance(value, dict) and _encode(value).count(b'":') == raw.count(b'":')
    except (*UNREADABLE, UnicodeEncodeError):
        return None
    return value if is_equal else None


class _Canonical(bytes):
    """JSON that is canonical already."""

    __slots__ = ()


def _canonical(raw: bytes) -> bytes:
    value = _plain_object(raw)
    if value is not None:
        return _encode(value)
    try:
        return _encoded(json.loads(raw, object_pairs_hook=_object))
    except (ValueError, RecursionError):
        return sha256(raw).hexdigest().encode()


def _object(pairs: Sequence[tuple[str, Any]]) -> _Canonical:
    """Sorts members by name; those of one name keep their order, since parsers differ in which one they take."""
    members = sorted(((name, _encoded(value)) for name, value in pairs), key=itemgetter(0))
    return _Canonical(b"{" + b",".join(b"%b:%b" % (_encoded(name), value) for name, value in members) + b"}")


def _encoded(value: Any) -> bytes:
    if isinstance(value, _Canonical):
        return value
    if isinstance(value, list):
        return b"[" + b",".join(map(_encoded, value)) + b"]"
    if isinstance(value, float) and not isfinite(value):
        return json.dumps(value).encode()
    try:
        return _encode(value)
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(value).encode()


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
        self._by_schema: defaultdict[tuple[str, bytes], list[int]] = defaultdict(list)
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
            shared = len(words & other_words)
            union = len(words) + len(other_words) - shared
            overlap = shared / union if union >= _MIN_WORDS else 0.0
            if schema and schema == other_schema and pin.server == server:
                overlap = max(overlap, _MIN_OVERLAP)
            if overlap >= _MIN_OVERLAP and overlap > best:
                best, found = overlap, f"{pin.server}/{pin.name}"
        return found

    def _rarest(self, words: frozenset[str]) -> list[str]:
        """Return the words of which a text must share one with each text that it resembles, rarest first."""
        ranked = sorted(words, key=lambda word: (self._frequency[word], word))
        return ranked[: len(words) - ceil(_MIN_OVERLAP * len(words)) + 1]


def _schema_and_words(raw: bytes) -> tuple[bytes, frozenset[str]]:
    """Return the canonical input schema, empty if it has no properties, and the words of the description."""
    fields = jsonrpc.members(Raw(raw)) if raw else {}
    schema = fields.get("inputSchema", Raw(b"{}"))
    has_properties = bool(jsonrpc.members(jsonrpc.members(schema).get("properties", Raw(b"{}"))))
    words = _WORD.findall((jsonrpc.text(fields.get("description")) or "").lower())
    return _canonical(bytes(schema)) if has_properties else b"", frozenset(words)
