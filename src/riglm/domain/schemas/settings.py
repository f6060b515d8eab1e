"""The whole configuration."""

import re
from collections.abc import Iterable
from itertools import permutations
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr, SecretStr, ValidationInfo, model_validator

from riglm.domain.naming import SEPARATOR, NamePatterns, Naming
from riglm.domain.redaction import secrets_of_command, secrets_of_options, secrets_of_url
from riglm.domain.schemas import section
from riglm.domain.schemas.downstream import ControlSettings, DownstreamSettings
from riglm.domain.schemas.filtering import AccessSettings, FilteringSettings, KnowledgeSettings
from riglm.domain.schemas.server import ServerSettings
from riglm.domain.tool_pin import OnChange
from riglm.domain.upstream import UpstreamSpec, derive_name

RESERVED_NAMES = frozenset({"set_context", "search_available_tools", "call_tool", "index_status", "mark_tool", "riglm"})
"""Names of meta-tools, which no server may have."""

LEFT_OUT = "left out"
"""The key of the validation context for the names of servers that were left out because they cannot be used."""

_SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")


def _check_names(servers: dict[str, ServerSettings]) -> dict[str, ServerSettings]:
    for name in servers:
        if not _SLUG.fullmatch(name):
            fix = "use up to 48 letters, digits, `-`, `_` and `.`, the first a letter or digit"
            raise section.problem(f"{name!r} cannot be the name of a server", fix, key=name)
        if name.lower() in RESERVED_NAMES:
            raise section.problem(f"{name!r} is the name of a tool of riglm", "choose another name", key=name)
    return servers


class Settings(section.SettingsModel):
    """All that can be configured, with its defaults; validated whole."""

    upstream: ServerSettings | None = None
    """The one server behind riglm. Or use `mcpServers`."""
    mcp_servers: Annotated[dict[str, ServerSettings], AfterValidator(_check_names)] = Field(
        default={}, alias="mcpServers"
    )
    """Several servers by name, in the shape that clients use."""
    naming: Naming = "prefix"
    """With several servers: tools are called SERVER__TOOL always, when two share a name, or never."""
    downstream: DownstreamSettings = DownstreamSettings.model_construct()
    timeouts: section.TimeoutSettings = section.TimeoutSettings.model_construct()
    limits: section.LimitSettings = section.LimitSettings.model_construct()
    sessions: section.SessionSettings = section.SessionSettings.model_construct()
    filtering: FilteringSettings = FilteringSettings.model_construct()
    access: dict[str, AccessSettings] = Field(default={})
    """What the callers of `riglm serve` may see and use, by group; without rules, everything."""
    prices: section.PriceSettings = section.PriceSettings.model_construct()
    embedder: section.EmbedderSettings = section.EmbedderSettings.model_construct()
    predictor: section.PredictorSettings = section.PredictorSettings.model_construct()
    learning: section.LearningSettings = section.LearningSettings.model_construct()
    logging: section.LoggingSettings = section.LoggingSettings.model_construct()
    storage: section.StorageSettings = section.StorageSettings.model_construct()
    clickhouse: section.ClickHouseSettings = section.ClickHouseSettings.model_construct()
    state: section.StateSettings = section.StateSettings.model_construct()
    privacy: section.PrivacySettings = section.PrivacySettings.model_construct()
    retention: section.RetentionSettings = section.RetentionSettings.model_construct()
    knowledge: KnowledgeSettings = KnowledgeSettings.model_construct()
    control: ControlSettings = ControlSettings.model_construct()
    tracing: section.TracingSettings = section.TracingSettings.model_construct()
    audit: section.AuditSettings = section.AuditSettings.model_construct()
    trust: section.TrustSettings = section.TrustSettings.model_construct()
    _from_variables: tuple[str, ...] = PrivateAttr(default=())
    _left_out: frozenset[str] = PrivateAttr(default=frozenset())

    @model_validator(mode="after")
    def _note_left_out(self, info: ValidationInfo) -> Self:
        self._left_out = frozenset((info.context or {}).get(LEFT_OUT, ()))
        return self

    @model_validator(mode="after")
    def _one_shape(self) -> Self:
        if self.upstream is not None and self.mcp_servers:
            raise section.problem("`upstream` and `mcpServers` are both given", "keep one of them", key="upstream")
        return self

    @model_validator(mode="after")
    def _distinct_prefixes(self) -> Self:
        if self.naming == "none":
            return self
        names = [name for name, server in self.mcp_servers.items() if not server.disabled]
        for one, other in permutations(names, 2):
            if (other + SEPARATOR).startswith(one + SEPARATOR):
                words = f"tools of {one!r} and {other!r} could get the same name: `{SEPARATOR}` ends a server's name"
                raise section.problem(words, f"rename {one!r} or {other!r}", key="mcpServers")
        return self

    @model_validator(mode="after")
    def _known_tokens(self) -> Self:
        for name, profile in self.filtering.profiles.items():
            for token in profile.tokens:
                if token not in self.downstream.principals:
                    words, fix = f"there is no token {token!r} in downstream.tokens", "name one of those, or add it"
                    raise section.problem(words, fix, key=f"filtering.profiles.{name}.tokens")
        return self

    @model_validator(mode="after")
    def _usable_pins(self) -> Self:
        for spec in self.upstream_specs():
            if spec.oauth.is_per_caller and (spec.on_change or self.trust.on_change) != "note":
                words = "with `accounts: caller` each caller may have different tools, which cannot be approved for all"
                raise section.problem(
                    words, "set `on_change: note` for this server", key=f"mcpServers.{spec.name}.on_change"
                )
        return self

    @model_validator(mode="after")
    def _usable_access(self) -> Self:
        if self.access and not self.downstream.principals and self.downstream.auth is None:
            words = "callers without a token have no groups"
            raise section.problem(words, "set downstream.auth or downstream.tokens", key="access")
        servers = {spec.name for spec in self.upstream_specs()} | self.mcp_servers.keys() | self._left_out
        profiles = {self.filtering.profile, *self.filtering.profiles}
        for group, rule in self.access.items():
            if not group.isprintable() or not group:
                raise section.problem(
                    f"{group!r} cannot be the name of a group", "use printable characters", key="access"
                )
            for key, known in (("servers", servers), ("profiles", profiles)):
                for pattern in getattr(rule, key):
                    if not any(map(NamePatterns((pattern,)).has, known)):
                        words, fix = f"there is none that is called {pattern!r}", f"use: {', '.join(sorted(known))}"
                        raise section.problem(words, fix, key=f"access.{group}.{key}")
            if self.naming != "prefix" and len(self.mcp_servers) + len(self._left_out) > 1 and "*" not in rule.servers:
                words = "with `naming: prefix` only, the names of tools show their servers"
                raise section.problem(words, "remove `naming`, or `servers` here", key=f"access.{group}.servers")
        return self

    @property
    def arguments(self) -> Literal["hash", "raw", "none"]:
        """What is stored of a call's arguments, both switches taken together."""
        return self.privacy.arguments if self.logging.include_arguments else "none"

    def upstream_specs(self) -> tuple[UpstreamSpec, ...]:
        """The servers in use, in the order given, in their normal form."""
        if self.upstream is not None:
            servers = {derive_name(self.upstream.command + self.upstream.args, self.upstream.url): self.upstream}
        else:
            servers = self.mcp_servers
        return tuple(server.spec(name) for name, server in servers.items() if not server.disabled)

    def server_names(self) -> tuple[str, ...]:
        """The names of the servers in use, in the order given."""
        return tuple(spec.name for spec in self.upstream_specs())

    @property
    def is_shared(self) -> bool:
        """True if other processes may continue the sessions of this one."""
        return self.state.kind != "memory"

    @property
    def intercepts_lists(self) -> bool:
        """True if riglm reads lists and calls: for the filter, even if enabled later, for access or `inner_voice`."""
        return self.filtering.is_on or self.control.enabled or self.knowledge.enabled or bool(self.access)

    @property
    def left_out(self) -> frozenset[str]:
        """The servers that were left out because they cannot be used."""
        return self._left_out

    @property
    def lone_server(self) -> str:
        """The name of the only server, whose tools keep their names; empty if there are several, or one of several."""
        specs = self.upstream_specs()
        return specs[0].name if len(specs) == 1 and not self._left_out else ""

    def on_change(self) -> dict[str, OnChange]:
        """Return, by server, what happens when its tools change."""
        return {
            spec.name: spec.on_change or self.trust.on_change
            for spec in self.upstream_specs()
            if not spec.oauth.is_per_caller
        }

    @property
    def from_variables(self) -> tuple[str, ...]:
        """What `${VARIABLES}` put into values that are free text: taken for secrets."""
        return self._from_variables

    def aware_of(self, from_variables: Iterable[str]) -> Self:
        """The same settings, which take these texts for secrets that came from variables."""
        aware = self.model_copy()
        aware._from_variables = tuple(sorted(set(from_variables)))  # noqa: SLF001  # same class
        return aware

    @property
    def own_secrets(self) -> tuple[str, ...]:
        """Return riglm's tokens, keys and passwords, without those of servers, in plain text."""
        guards = (self.privacy.key, self.control.token, self.control.read_token)
        return (
            *self.downstream.principals.values(),
            *(guard.get_secret_value() for guard in guards if guard),
            *self.storage.secrets(),
            *self.clickhouse.secrets(),
            *self.state.secrets(),
            *secrets_of_options((self.predictor.options, self.embedder.options)),
        )

    def secrets(self) -> tuple[str, ...]:
        """Every value that must never be shown or logged, in the clear: for redaction only."""
        found: list[SecretStr] = []
        plain = [*self.own_secrets]
        for server in [*([self.upstream] if self.upstream else []), *self.mcp_servers.values()]:
            found += [*server.env.values(), *server.headers.values(), *server.secrets()]
            plain += [*secrets_of_url(server.url), *secrets_of_command(server.command + server.args)]
        return (*(secret.get_secret_value() for secret in found), *plain, *self._from_variables)


SCHEMA_ID = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The schema of `riglm.yaml`."""
    return {"$schema": SCHEMA_ID, **Settings.model_json_schema(by_alias=True), "title": "riglm.yaml"}
