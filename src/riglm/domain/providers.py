"""What providers of models take as a tool: one that they refuse makes the whole request fail."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

_COMBINED: Final = ("oneOf", "anyOf", "allOf")
_NOT_OF_GEMINI: Final = frozenset(
    {"$ref", "allOf", "oneOf", "not", "if", "then", "else", "const"}
    | {"additionalProperties", "patternProperties", "unevaluatedProperties"}
    | {"contains", "uniqueItems", "multipleOf", "exclusiveMaximum", "exclusiveMinimum"}
)
_WITH_SCHEMAS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_DEEPEST: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One provider's rules, and how its clients write the name of an MCP tool.

    `called` returns the name that the provider receives, from riglm's name in the client's configuration and the
    tool's. `schema_faults` returns what it rejects in an `inputSchema`. `is_strict` is True if common clients forward
    what it rejects instead of repairing it. `clients` use no other provider; they are named as `riglm init` does.
    """

    title: str
    longest: int
    characters: re.Pattern[str]
    called: Callable[[str, str], str]
    schema_faults: Callable[[Mapping[str, Any]], Iterator[str]]
    clients: frozenset[str]
    is_strict: bool = True

    def name_fault(self, entry: str, tool: str) -> str | None:
        """Why it refuses a tool's name when riglm is called `entry`; None when it does not."""
        name = self.called(entry, tool)
        if len(name) > self.longest:
            return f"{len(name)} characters as `{name}`, and at most {self.longest} are taken"
        if self.characters.fullmatch(tool):
            return None
        odd = sorted({letter for letter in tool if not self.characters.fullmatch(f"a{letter}")})
        return f"it has {' '.join(map(repr, odd))}" if odd else f"it begins with {tool[:1]!r}"


def combined_at_top(schema: Mapping[str, Any]) -> Iterator[str]:
    """What neither Anthropic nor OpenAI takes at the top of a schema."""
    yield from (f"`{word}` at the top" for word in _COMBINED if word in schema)


def faults_for_openai(schema: Mapping[str, Any]) -> Iterator[str]:
    """What OpenAI takes nowhere."""
    yield from combined_at_top(schema)
    if any(part.get("type") == "array" and "items" not in part for part in parts_of(schema)):
        yield "an array without `items`"


def faults_for_gemini(schema: Mapping[str, Any]) -> Iterator[str]:
    """Keywords that the schemas of Gemini's function declarations do not have."""
    used = {word for part in parts_of(schema) for word in part}
    yield from (f"`{word}`" for word in sorted(used & _NOT_OF_GEMINI))
    if any(isinstance(part.get("type"), list) for part in parts_of(schema)):
        yield "a list as `type`"


def parts_of(schema: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and the schemas within it, unless absurdly deep; no reference is followed."""
    if depth > _DEEPEST:
        return
    if isinstance(schema, list):
        for each in schema:
            yield from parts_of(each, depth + 1)
    elif isinstance(schema, Mapping):
        yield schema
        for word, value in schema.items():
            inner = list(value.values()) if word in _WITH_SCHEMAS and isinstance(value, Mapping) else value
            if word not in {"default", "const", "enum", "examples"}:
                yield from parts_of(inner, depth + 1)


PROVIDERS: Final = (
    Provider(
        title="Anthropic (Claude Code)",
        longest=128,
        characters=re.compile(r"[A-Za-z0-9_-]+"),
        called=lambda entry, tool: f"mcp__{entry}__{tool}",
        schema_faults=combined_at_top,
        clients=frozenset({"claude-code", "claude-desktop"}),
    ),
    Provider(
        title="OpenAI",
        longest=64,
        characters=re.compile(r"[A-Za-z0-9_-]+"),
        called=lambda _, tool: tool,
        schema_faults=faults_for_openai,
        clients=frozenset({"codex"}),
    ),
    Provider(
        title="Gemini",
        longest=64,
        characters=re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*"),
        called=lambda _, tool: tool,
        schema_faults=faults_for_gemini,
        clients=frozenset({"gemini"}),
        is_strict=False,
    ),
)
"""Gemini's own client mends names and schemas before it sends them; others do not."""


def providers_of(client: str) -> tuple[Provider, ...]:
    """Return the providers that may see the tools of a client; all of them for one that may use any."""
    return tuple(provider for provider in PROVIDERS if client in provider.clients) or PROVIDERS
