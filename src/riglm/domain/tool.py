"""Tools as upstreams list them: names for riglm, raw bytes for the client."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Final

import msgspec

from riglm.domain import jsonrpc, protocol
from riglm.domain.jsonrpc import Raw
from riglm.domain.rawjson import UNREADABLE


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: its name, and its whole definition as the raw JSON that the upstream wrote."""

    name: str
    raw: Raw


@dataclass(frozen=True)
class ToolCatalog:
    """One upstream's list of tools, in its order, never changed in place.

    `raw` is the result it was read from, so that the next list can be compared with it byte by byte. `others` are the
    entries without a name, each with the number of tools before it. `next_cursor` is the raw cursor of the page that
    follows, empty when none does. `missing` are the names of the upstream servers whose tools are not in it yet: unless
    it is empty, the list is incomplete.
    """

    tools: tuple[Tool, ...] = ()
    raw: bytes = b""
    others: tuple[tuple[int, Raw], ...] = ()
    next_cursor: bytes = b""
    missing: tuple[str, ...] = ()

    def entries(self) -> Iterator[tuple[Raw, Tool | None]]:
        """All entries in order, with the tool that each one is; None for those without a name."""
        start = 0
        for place, raw in self.others:
            yield from ((tool.raw, tool) for tool in self.tools[start:place])
            yield raw, None
            start = place
        yield from ((tool.raw, tool) for tool in self.tools[start:])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The tools' names in order."""
        return tuple(tool.name for tool in self.tools)

    @cached_property
    def name_set(self) -> frozenset[str]:
        """The tools' names, for membership tests."""
        return frozenset(self.names)

    @cached_property
    def digest(self) -> bytes:
        """A hash of all definitions, so that equal lists are recognised."""
        return blake2b(self.raw or b"\0".join(tool.raw for tool in self.tools), digest_size=16).digest()

    @cached_property
    def by_name(self) -> dict[str, Tool]:
        """The tools by name; the first one wins where a name occurs twice."""
        return {tool.name: tool for tool in reversed(self.tools)}

    def input_schema(self, name: str) -> Raw | None:
        """The raw `inputSchema` of a tool, None when the tool or its schema is unknown."""
        tool = self.by_name.get(name)
        return jsonrpc.members(tool.raw).get("inputSchema") if tool else None


def named(names: Iterable[str], known: ToolCatalog) -> ToolCatalog:
    """Return the tools of these names where known, and only the name of the others."""
    missing = (Tool(name, Raw(b'{"name":%b}' % jsonrpc.encode(name))) for name in names)
    return ToolCatalog(tuple(known.by_name.get(tool.name, tool) for tool in missing))


def read_catalog(result: bytes) -> ToolCatalog:
    """Read the raw result of a `tools/list`; entries without a name are no tools."""
    tools: list[Tool] = []
    others = []
    fields = jsonrpc.members(result)
    for raw in jsonrpc.elements(fields.get("tools", b"[]")):
        name = _name(raw)
        if name is None:
            others.append((len(tools), raw))
        else:
            tools.append(Tool(name, raw))
    return ToolCatalog(tuple(tools), result, tuple(others), jsonrpc.next_cursor(fields), _missing_servers(fields))


class _Named(msgspec.Struct):
    name: str | None = None


class _Described(msgspec.Struct):
    description: str | None = None


class _Schema(msgspec.Struct):
    properties: dict[str, _Described] = {}


class _Texts(msgspec.Struct):
    description: str | None = None
    title: str | None = None
    schema: _Schema = msgspec.field(default_factory=_Schema, name="inputSchema")


_decode_named: Final = msgspec.json.Decoder(_Named).decode
_decode_texts: Final = msgspec.json.Decoder(_Texts).decode


def _name(raw: Raw) -> str | None:
    try:
        str(raw, "utf-8")  # the decoder does not check the names of other members, as `jsonrpc.members` does
        return _decode_named(raw).name
    except UNREADABLE:
        return jsonrpc.text(jsonrpc.members(raw).get("name"))


def _missing_servers(fields: Mapping[str, Raw]) -> tuple[str, ...]:
    """Return the upstream servers that the `_meta` of a result names as missing."""
    named = jsonrpc.members(fields["_meta"]).get(protocol.META_MISSING) if "_meta" in fields else None
    return tuple(name for raw in jsonrpc.elements(named) if (name := jsonrpc.text(raw))) if named else ()


@dataclass(frozen=True, kw_only=True)
class ToolProfile:
    """The texts of a tool, for retrieval. `name` is the name that clients see, `bare_name` the server's."""

    name: str
    bare_name: str = ""
    server: str = ""
    server_description: str = ""
    description: str = ""
    parameters: tuple[str, ...] = ()
    parameter_descriptions: tuple[str, ...] = ()

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all that it says."""
        said = (
            self.bare_name,
            self.server,
            self.server_description,
            self.description,
            *self.parameters,
            *self.parameter_descriptions,
        )
        return blake2b("\0".join(said).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def profile(tool: Tool, *, server: str = "", bare_name: str = "") -> ToolProfile:
    """Return the texts of a listed tool; what is missing or of the wrong kind stays empty."""
    try:
        texts = _decode_texts(tool.raw)
    except UNREADABLE:
        texts = _tolerant_texts(tool.raw)
    properties = texts.schema.properties
    return ToolProfile(
        name=tool.name,
        bare_name=bare_name or tool.name,
        server=server,
        description=texts.description or texts.title or "",
        parameters=tuple(properties),
        parameter_descriptions=tuple(each.description for each in properties.values() if each.description),
    )


def _tolerant_texts(raw: Raw) -> _Texts:
    """Read what is of the right kind."""
    fields = jsonrpc.members(raw)
    schema = jsonrpc.members(fields.get("inputSchema", b"{}"))
    properties = {
        name: _Described(jsonrpc.text(jsonrpc.members(value).get("description")))
        for name, value in jsonrpc.members(schema.get("properties", b"{}")).items()
    }
    title = jsonrpc.text(fields.get("title"))
    return _Texts(jsonrpc.text(fields.get("description")), title, _Schema(properties))


BYTES_PER_TOKEN: Final = 4
"""Bytes per token of JSON Schema in English with common tokenizers; good to about a fifth."""


def estimated_tokens(size: int) -> int:
    """Return the tokens of definitions of this number of bytes, rounded up."""
    return -(-size // BYTES_PER_TOKEN)


@dataclass(frozen=True, kw_only=True, eq=False)
class PermittedTools:
    """The tools of a catalogue that a session may know of, one object for each catalog and policy.

    `candidates` can be listed, in the catalog's order; `kept` are those of them that always are. `never_shown` are
    callable and never listed. All others are denied.
    """

    catalog: ToolCatalog
    candidates: tuple[str, ...]
    kept: frozenset[str] = frozenset()
    never_shown: frozenset[str] = frozenset()

    @cached_property
    def candidate_set(self) -> frozenset[str]:
        """The candidates, for membership tests."""
        return frozenset(self.candidates)

    @property
    def is_whole(self) -> bool:
        """Whether every tool of the catalogue can be shown."""
        return len(self.candidates) == len(self.catalog.names)

    @cached_property
    def sizes(self) -> dict[str, float]:
        """The estimated tokens of each candidate's definition."""
        by_name = self.catalog.by_name
        return {name: memoryview(by_name[name].raw).nbytes / BYTES_PER_TOKEN for name in self.candidates}

    @cached_property
    def tokens(self) -> int:
        """The estimated tokens of all candidates."""
        return self.tokens_of(self.sizes)

    def tokens_of(self, names: Iterable[str]) -> int:
        """The estimated tokens of some candidates."""
        return math.ceil(sum(self.sizes.get(name, 0.0) for name in names))

    def allows(self, name: str) -> bool:
        """Whether the catalogue has a tool of this name that may run."""
        return name in self.candidate_set or name in self.never_shown


MAX_CATALOG_BYTES: Final = 1 << 20
"""Maximum size of a stored catalog. A larger one is not stored."""

TTL_SECONDS: Final = 180 * 86_400.0
"""Seconds after which a stored catalog that no process has refreshed is removed."""


@dataclass(frozen=True, kw_only=True)
class StoredToolCatalog:
    """The tools of one upstream server as it listed them, and what it declared about itself.

    `fingerprint` is a keyed hash of the server's name and of its command or URL. `variant` identifies one of several
    catalogs of a server: by protocol era and, since servers may use them, by the capabilities of the client.
    `capabilities` is the raw JSON object that the server declared, `tools` the raw JSON array of its tools; each is
    empty while it is not known. `updated_at` is in seconds since the epoch.
    """

    fingerprint: str
    variant: str
    server: str
    capabilities: bytes
    instructions: str
    tools: bytes
    updated_at: float

    @cached_property
    def entries(self) -> Sequence[Raw]:
        """The raw tools."""
        return jsonrpc.elements(self.tools)

    @property
    def size_bytes(self) -> int:
        """About the size in the store."""
        return len(self.tools) + len(self.capabilities) + len(self.instructions)
