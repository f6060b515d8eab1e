"""Checks of what servers list: what providers of models make of their tools, together and one by one."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from riglm.domain import jsonrpc
from riglm.domain.client_setup import ENTRY
from riglm.domain.client_support import CLIENTS
from riglm.domain.definition_scan import OtherTools, scan_definition
from riglm.domain.doctor import DoctorSection, Finding, Severity
from riglm.domain.naming import NamePatterns, public_names
from riglm.domain.policy import Policy, ToolVisibility
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.schemas.settings import Settings
from riglm.domain.tool import Tool, ToolCatalog, estimated_tokens
from riglm.domain.tool_pin import OnChange

_COMBINED: Final = ("oneOf", "anyOf", "allOf")
_WITH_SCHEMAS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_DEEPEST: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One provider's rules, and how its clients write the name of an MCP tool.

    `called` returns the name that the provider receives, from riglm's name in the client's configuration and the
    tool's. `schema_faults` returns what it rejects in an `inputSchema`. `clients` use no other provider;
    they are named as `riglm init` does.
    """

    title: str
    longest: int
    characters: re.Pattern[str]
    called: Callable[[str, str], str]
    schema_faults: Callable[[Mapping[str, Any]], Iterator[str]]
    clients: frozenset[str]

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
)
"""Those whose clients forward what the provider rejects."""


def providers_of(client: str) -> tuple[Provider, ...]:
    """Return the providers that may see the tools of a client; all of them for one that may use any."""
    if client == "gemini":  # it mends names and schemas before it sends them
        return ()
    return tuple(provider for provider in PROVIDERS if client in provider.clients) or PROVIDERS


_MAX_NAMED: Final = 5
_MAX_NAME_LENGTH: Final = 64
_DENY: Final = "deny it with `filtering.denylist`, or ask its authors to rename it: one such tool fails every request"
_REVIEW: Final = "read its definition, and deny it with `filtering.denylist` unless you trust the server"
_finding: Final = partial(Finding, DoctorSection.TOOLS)


class ListedTool:
    """One tool as clients see it: under its public name, with its definition read."""

    def __init__(self, name: str, server: str, tool: Tool) -> None:
        """The tool that `server` calls `tool.name`."""
        self.name = name
        self.server = server
        self.own_name = tool.name
        self.definition = tool.raw
        self.fields = jsonrpc.members(tool.raw)
        raw = self.fields.get("inputSchema")
        self.schema: Any = None if raw is None else jsonrpc.plain(raw)


def check_tools(
    catalogs: Mapping[str, ToolCatalog],
    find_schema_fault: Callable[[Any], str | None],
    settings: Settings,
    *,
    client: str = "",
    entry: str = ENTRY,
) -> Iterator[Finding]:
    """Report on the tools of all servers that could be probed, by the server's name.

    `find_schema_fault` returns why something is no JSON Schema. `client` is the only one that sees the tools, as `riglm
    init` calls it; empty when it may be any. `entry` is riglm's name in the client's configuration: some clients use it
    as a prefix of tool names.
    """
    filtering = settings.filtering
    for server, catalog in catalogs.items():
        twice = sorted(name for name, count in Counter(catalog.names).items() if count > 1)
        if twice:
            what = f"{server} lists {_some(twice)} more than once; the first one counts"
            yield _finding(Severity.WARNING, "names", what, "ask the server's authors to correct it")
    owned = {server: tuple(dict.fromkeys(catalog.names)) for server, catalog in catalogs.items()}
    if settings.lone_server:  # its names are forwarded unchanged
        public = {name: (server, name) for server, names in owned.items() for name in names}
    else:
        public, collisions = public_names(settings.naming, owned)
        yield from _check_collisions(owned, collisions)
    policy = Policy(
        allowed=NamePatterns(filtering.allowlist) if filtering.allowlist else None,
        denied=NamePatterns(filtering.denylist),
    )
    listed = [ListedTool(name, server, catalogs[server].by_name[own]) for name, (server, own) in public.items()]
    if filtering.is_on:  # no client ever sees those that are denied
        denied = ToolVisibility.DENIED
        listed = [each for each in listed if policy.decide(each.name, others=(each.own_name,)) is not denied]
    if not listed:
        return
    providers = providers_of(client)
    for provider in providers:
        faults = {each.name: fault for each in listed if (fault := provider.name_fault(entry, each.name))}
        if faults:
            what = f"{_some([*faults])}: {provider.title} does not take the name ({next(iter(faults.values()))})"
            yield _finding(Severity.WARNING, "names", what, _DENY)
    yield from _check_schemas(listed, providers, find_schema_fault)
    yield from _check_definitions(listed)
    silent = [each.name for each in listed if not jsonrpc.text(each.fields.get("description"))]
    if silent:
        what = f"{_some(silent)}: no description, so that neither a model nor riglm knows what it is for"
        yield _finding(Severity.NOTE, "descriptions", what, "ask the server's authors for one")
    yield _check_size(listed, filtering, client)


def check_changed_tools(changed: Sequence[tuple[str, str]], on_change: Mapping[str, OnChange]) -> Iterator[Finding]:
    """Report tools that are not as they were approved; those of servers that are not in `on_change` are left out."""
    effects = {"note": "", "hold": ", and calls of them are refused", "block": ", and the server is blocked"}
    for server, mode in on_change.items():
        names = [name for of, name in changed if of == server]
        if names:
            what = f"{_some(names)}: changed or added since approved{effects[mode]}"
            fix = f"see `riglm tools changes`, and approve them with `riglm tools approve {server}`"
            yield _finding(Severity.NOTE if mode == "note" else Severity.WARNING, server, what, fix)


def _check_collisions(
    owned: Mapping[str, Sequence[str]], collisions: Sequence[tuple[str, str, str]]
) -> Iterator[Finding]:
    for name, holder, other in collisions:
        what = f"{name!r} is a tool of {holder!r} and of {other!r}, and riglm does not start so"
        yield _finding(Severity.ERROR, "names", what, "set `naming: prefix` or `naming: on_collision`")
    counts = Counter(name for names in owned.values() for name in names)
    shared = sorted(name for name, count in counts.items() if count > 1)
    if shared and not collisions:
        what = f"{_some(shared)}: tools of several servers have this name; clients see it with the server as a prefix"
        yield _finding(Severity.NOTE, "names", what)


def _check_schemas(
    listed: Sequence[ListedTool], providers: Sequence[Provider], find_schema_fault: Callable[[Any], str | None]
) -> Iterator[Finding]:
    broken = {each.name: fault for each in listed if (fault := _schema_fault(each.schema, find_schema_fault))}
    for name, fault in list(broken.items())[:_MAX_NAMED]:
        yield _finding(Severity.WARNING, name, f"its inputSchema cannot be used: {fault}", _DENY)
    if len(broken) > _MAX_NAMED:
        what = f"{len(broken) - _MAX_NAMED} more tools have an inputSchema that cannot be used"
        yield _finding(Severity.WARNING, "schemas", what, _DENY)
    for provider in providers:
        faults = {
            each.name: words
            for each in listed
            if each.name not in broken and (words := list(provider.schema_faults(each.schema)))
        }
        if faults:
            kinds = ", ".join(sorted({word for words in faults.values() for word in words}))
            what = f"{_some([*faults])}: {provider.title} does not take {kinds} in a schema"
            yield _finding(Severity.WARNING, "schemas", what, _DENY)


def _schema_fault(schema: Any, find_schema_fault: Callable[[Any], str | None]) -> str | None:
    if not isinstance(schema, dict):
        return "it is missing" if schema is None else "it is no object"
    return "its `type` is not `object`" if schema.get("type") != "object" else find_schema_fault(schema)


def _check_definitions(listed: Sequence[ListedTool]) -> Iterator[Finding]:
    """Report texts in definitions that are meant for neither the user nor the caller of a tool."""
    by_server: dict[str, list[str]] = {}
    for each in listed:
        by_server.setdefault(each.server, []).append(each.own_name)
    others = OtherTools(by_server)
    count = 0
    for each in listed:
        found = scan_definition(jsonrpc.plain(each.definition), others, each.server)
        count += bool(found)
        if found and count <= _MAX_NAMED:
            what = "; ".join(f"{one.rule} in `{one.path}`: {one.excerpt}" for one in found[:_MAX_NAMED])
            yield _finding(Severity.WARNING, each.name, what, _REVIEW)
    if count > _MAX_NAMED:
        yield _finding(Severity.WARNING, "definitions", f"{count - _MAX_NAMED} more tools have such texts", _REVIEW)


def _check_size(listed: Sequence[ListedTool], filtering: FilteringSettings, client: str) -> Finding:
    count, tokens = len(listed), estimated_tokens(sum(len(each.definition) for each in listed))
    what = f"{count} tool{'' if count == 1 else 's'}, about {tokens:,} tokens for a client that is shown all"
    is_predicted = filtering.is_on and filtering.strategy == "prediction"
    if is_predicted and filtering.mode == "enforce" and filtering.surface != "full":
        return _finding(Severity.OK, "all", f"{what}; clients get those whose listing pays")
    asked = [known for known in CLIENTS if client in {"", known.key} and known.most_tools is not None]
    narrow = [f"{known.title} takes {known.most_tools}" for known in asked if count > (known.most_tools or count)]
    if not narrow:
        return _finding(Severity.OK, "all", what)
    fix = "run `riglm enforce` when `riglm report` recommends it, or deny tools that are never used"
    severity = Severity.WARNING if client else Severity.NOTE
    return _finding(severity, "all", f"{what}; all are shown, and {', '.join(narrow)}", fix)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    shown = (name if len(name) <= _MAX_NAME_LENGTH else f"{name[:_MAX_NAME_LENGTH]}…" for name in names[:_MAX_NAMED])
    return ", ".join(shown) + more
