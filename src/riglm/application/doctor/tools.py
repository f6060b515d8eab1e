"""What the servers' tools are like for providers of models, together and one by one."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from riglm.application.doctor.check import Check, SharedProbe
from riglm.application.doctor.server_probe import ServerProbe
from riglm.domain import jsonrpc
from riglm.domain.client_setup import ENTRY
from riglm.domain.client_support import CLIENTS
from riglm.domain.definition_scan import OtherTools, scan_definition
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.domain.finding import DoctorSection, Finding, Severity, finding
from riglm.domain.naming import NamePatterns, Naming, public_names
from riglm.domain.policy import Policy, ToolVisibility
from riglm.domain.providers import Provider, providers_of
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.tool import Tool, estimated_tokens
from riglm.domain.tool_pin import OnChange
from riglm.ports.doctor import SchemaValidatorPort, StoreStatus

_MAX_NAMED: Final = 5
_MAX: Final = 64
_DENY: Final = "deny it with `filtering.denylist`, or ask its authors to rename it: one such tool fails every request"
_REVIEW: Final = "read its definition, and deny it with `filtering.denylist` unless you trust the server"
_finding: Final = partial(finding, DoctorSection.TOOLS)


class Listed:
    """One tool as clients see it: under its public name, with its definition read."""

    def __init__(self, name: str, server: str, tool: Tool) -> None:
        """The tool that `server` calls `tool.name`."""
        self.name = name
        self.server = server
        self.own_name = tool.name
        self.definition = tool.raw
        self.fields = jsonrpc.members(tool.raw)
        self.size = len(tool.raw)
        raw = self.fields.get("inputSchema")
        self.schema: Any = None if raw is None else jsonrpc.plain(raw)

    @property
    def shape(self) -> Mapping[str, Any]:
        """The schema, empty when it is none."""
        return self.schema if isinstance(self.schema, dict) else {}


class ToolsFindings:
    """Judges what servers list."""

    def __init__(
        self,
        judge: SchemaValidatorPort,
        *,
        naming: Naming,
        filtering: FilteringSettings,
        client: str = "",
        entry: str = ENTRY,
        is_alone: bool = False,
    ) -> None:
        """`client` is the only one that sees them, as `riglm init` calls it; empty when it may be any.

        `entry` is riglm's name in the client's configuration: some clients use it as a prefix of tool names.
        `is_alone` is True if there is only one server, whose names are forwarded unchanged.
        """
        self._client = client
        self._entry = entry
        self._is_alone = is_alone
        self._judge = judge
        self._naming: Naming = naming
        self._filtering = filtering
        self._providers = providers_of(client)
        self._policy = Policy(
            allowed=NamePatterns(filtering.allowlist) if filtering.allowlist else None,
            denied=NamePatterns(filtering.denylist),
        )

    async def about(self, visits: Sequence[ServerProbe]) -> list[Finding]:
        """Reports on the tools of all servers that could be probed."""
        listed, findings = self._listed(visits)
        listed = [each for each in listed if not self._is_denied(each)]
        if not listed:
            return findings
        findings += self._names(listed)
        findings += self._schemas(listed)
        findings += _suspicious(listed)
        silent = [each.name for each in listed if not jsonrpc.text(each.fields.get("description"))]
        if silent:
            what = f"{_some(silent)}: no description, so that neither a model nor riglm knows what it is for"
            findings.append(_finding(Severity.NOTE, "descriptions", what, "ask the server's authors for one"))
        return [*findings, self._size(listed)]

    def _is_denied(self, listed: Listed) -> bool:
        """Whether no client ever sees it."""
        denied = self._policy.decide(listed.name, others=(listed.own_name,)) is ToolVisibility.DENIED
        return denied and self._filtering.is_on

    def _listed(self, visits: Sequence[ServerProbe]) -> tuple[list[Listed], list[Finding]]:
        by_server = {found.spec.name: found.catalog for found in visits}
        findings = []
        for server, catalog in by_server.items():
            twice = sorted(name for name, count in Counter(catalog.names).items() if count > 1)
            if twice:
                what = f"{server} lists {_some(twice)} more than once; the first one counts"
                findings.append(_finding(Severity.WARNING, "names", what, "ask the server's authors to mend it"))
        if self._is_alone:
            public = {name: (server, name) for server, catalog in by_server.items() for name in catalog.names}
            return [Listed(name, *_named(by_server, at)) for name, at in public.items()], findings
        owned = {server: tuple(dict.fromkeys(catalog.names)) for server, catalog in by_server.items()}
        public, collisions = public_names(self._naming, owned)
        for name, holder, other in collisions:
            what = f"{name!r} is a tool of {holder!r} and of {other!r}, and riglm does not start so"
            findings.append(_finding(Severity.ERROR, "names", what, "set `naming: prefix` or `naming: on_collision`"))
        shared = _shared(owned)
        if shared and not collisions:
            what = (
                f"{_some(shared)}: tools of several servers have this name; clients see it with the server as a prefix"
            )
            findings.append(_finding(Severity.NOTE, "names", what))
        return [Listed(name, *_named(by_server, at)) for name, at in public.items()], findings

    def _names(self, listed: Sequence[Listed]) -> list[Finding]:
        findings = []
        for provider in self._providers:
            faults = {each.name: fault for each in listed if (fault := provider.name_fault(self._entry, each.name))}
            if faults:
                fault = next(iter(faults.values()))
                what = f"{_some(list(faults))}: {provider.title} does not take the name ({fault})"
                findings.append(_finding(_weight(provider), "names", what, _fix(provider)))
        return findings

    def _schemas(self, listed: Sequence[Listed]) -> list[Finding]:
        broken = {each.name: fault for each in listed if (fault := self._fault(each))}
        findings = [
            _finding(Severity.WARNING, name, f"its inputSchema cannot be used: {fault}", _DENY)
            for name, fault in list(broken.items())[:_MAX_NAMED]
        ]
        if len(broken) > _MAX_NAMED:
            what = f"{len(broken) - _MAX_NAMED} more tools have an inputSchema that cannot be used"
            findings.append(_finding(Severity.WARNING, "schemas", what, _DENY))
        sound = [each for each in listed if each.name not in broken]
        for provider in self._providers:
            faults = {each.name: list(provider.schema_faults(each.shape)) for each in sound}
            used = {name: words for name, words in faults.items() if words}
            if used:
                kinds = ", ".join(sorted({word for words in used.values() for word in words}))
                what = f"{_some(list(used))}: {provider.title} does not take {kinds} in a schema"
                findings.append(_finding(_weight(provider), "schemas", what, _fix(provider)))
        return findings

    def _fault(self, listed: Listed) -> str | None:
        if not isinstance(listed.schema, dict):
            return "it is missing" if listed.schema is None else "it is no object"
        if listed.schema.get("type") != "object":
            return "its `type` is not `object`"
        return self._judge.fault(listed.schema)

    def _size(self, listed: Sequence[Listed]) -> Finding:
        count, tokens = len(listed), estimated_tokens(sum(each.size for each in listed))
        what = f"{count} tool{'' if count == 1 else 's'}, about {tokens:,} tokens for a client that is shown all"
        asked = [known for known in CLIENTS if self._client in {"", known.key} and known.most_tools is not None]
        narrow = [known for known in asked if count > (known.most_tools or count)]
        if narrow and not self._is_short:
            taken = ", ".join(f"{known.title} takes {known.most_tools}" for known in narrow)
            fix = "run `riglm enforce` when `riglm report` recommends it, or deny tools that are never used"
            weight = Severity.WARNING if self._client else Severity.NOTE
            return _finding(weight, "all", f"{what}; all are shown, and {taken}", fix)
        shown = "; clients get those whose listing pays" if self._is_short else ""
        return _finding(Severity.OK, "all", what + shown)

    @property
    def _is_short(self) -> bool:
        """Whether riglm shows fewer than there are."""
        rules = self._filtering
        return rules.is_on and rules.strategy == "prediction" and rules.mode == "enforce" and rules.surface != "full"


class ChangedToolsCheck(Check):
    """Reports tools that are not as they were approved."""

    sections = (DoctorSection.TOOLS,)

    def __init__(self, store: SharedProbe[StoreStatus], on_change: Mapping[str, OnChange]) -> None:
        """`on_change` is by server; tools of other servers are left out."""
        self._store = store
        self._on_change = on_change

    async def examine(self) -> Sequence[Finding]:
        try:
            changed = (await self._store.facts()).changed_tools
        except AnalyticsUnavailableError:
            return []  # reported by the store check
        found = []
        for server, mode in self._on_change.items():
            names = [name for of, name in changed if of == server]
            if names:
                effect = {"note": "", "hold": ", and calls of them are refused", "block": ", and the server is blocked"}
                what = f"{_some(names)}: changed or added since approved{effect[mode]}"
                weight = Severity.NOTE if mode == "note" else Severity.WARNING
                fix = f"see `riglm tools changes`, and approve them with `riglm tools approve {server}`"
                found.append(_finding(weight, server, what, fix))
        return found


def _suspicious(listed: Sequence[Listed]) -> Iterator[Finding]:
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


def _named(by_server: Mapping[str, Any], at: tuple[str, str]) -> tuple[str, Tool]:
    server, name = at
    return server, by_server[server].by_name[name]


def _shared(owned: Mapping[str, Iterable[str]]) -> list[str]:
    counts = Counter(name for names in owned.values() for name in names)
    return sorted(name for name, count in counts.items() if count > 1)


def _weight(provider: Provider) -> Severity:
    return Severity.WARNING if provider.is_strict else Severity.NOTE


def _fix(provider: Provider) -> str:
    return _DENY if provider.is_strict else "nothing with Gemini CLI; other clients of Gemini may fail on these tools"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(name if len(name) <= _MAX else f"{name[:_MAX]}…" for name in names[:_MAX_NAMED]) + more
