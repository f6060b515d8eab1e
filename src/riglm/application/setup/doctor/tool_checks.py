"""Checks of what servers list: what providers of models make of their tools, together and one by one."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from riglm.domain import jsonrpc
from riglm.domain.client_setup import ENTRY
from riglm.domain.client_support import CLIENTS
from riglm.domain.definition_scan import OtherTools, scan_definition
from riglm.domain.doctor import DoctorSection, Finding, Severity
from riglm.domain.naming import NamePatterns, public_names
from riglm.domain.policy import Policy, ToolVisibility
from riglm.domain.providers import Provider, providers_of
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.schemas.settings import Settings
from riglm.domain.tool import Tool, ToolCatalog, estimated_tokens
from riglm.domain.tool_pin import OnChange

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
            yield _finding(*_weight(provider, "names", what))
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
            yield _finding(*_weight(provider, "schemas", what))


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


def _weight(provider: Provider, place: str, what: str) -> tuple[Severity, str, str, str]:
    if provider.is_strict:
        return Severity.WARNING, place, what, _DENY
    return Severity.NOTE, place, what, "nothing with Gemini CLI; other clients of Gemini may fail on these tools"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    shown = (name if len(name) <= _MAX_NAME_LENGTH else f"{name[:_MAX_NAME_LENGTH]}…" for name in names[:_MAX_NAMED])
    return ", ".join(shown) + more
