"""What all sections of the configuration have in common, and those that have no module."""

import ast
import inspect
import re
import sys
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from riglm.domain.list_plan import Prices
from riglm.domain.redaction import is_clearly_written, passwords_of_url
from riglm.domain.retention import DAY_SECONDS, Expiry
from riglm.domain.tool_pin import OnChange

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

Seconds = Annotated[float, Field(gt=0, le=31_536_000)]
"""A span of time in seconds: more than nothing, at most a year."""

SecretMap = dict[str, SecretStr]
"""Names with values that are never shown."""


class SettingsModel(BaseModel):
    """A part of the configuration: read once, never changed, nothing in it unknown."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        coerce_numbers_to_str=True,
        populate_by_name=True,
        defer_build=True,
        hide_input_in_errors=True,
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> "JsonSchemaValue":
        """Describe each key by the docstring below it. Only schemas need these: reading them would slow down starts."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema)["properties"]
        for name, text in _read_key_docstrings(cls).items():
            properties[cls.model_fields[name].alias or name]["description"] = text
        return schema


def _read_key_docstrings(model: type[BaseModel]) -> dict[str, str]:
    classes = [each for each in _parse_module(model.__module__) if isinstance(each, ast.ClassDef)]
    body = next(each.body for each in classes if each.name == model.__name__)
    return {
        key.target.id: " ".join(text.value.value.split())
        for key, text in pairwise(body)
        if isinstance(key, ast.AnnAssign) and isinstance(key.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


@cache
def _parse_module(name: str) -> list[ast.stmt]:
    return ast.parse(inspect.getsource(sys.modules[name])).body


def problem(what: str, fix: str, *, key: str = "") -> PydanticCustomError:
    """An error for a validator to raise: what is wrong, what to do, and the key below the model that it is about."""
    # The text goes through the context because pydantic reads braces in the template as fields.
    return PydanticCustomError("riglm", "{what} — fix: {fix}", {"what": what, "fix": fix, "key": key})


_PLACEHOLDER = re.compile(
    r"(?i)(your|my|the|change|replace|insert|example|placeholder|secret|token|password|api|key|admin|test|default|here"
    r"|me|this|x|0|1|-|_)+"
)
_MIN_TOKEN = 16


def check_token(token: SecretStr, which: str = "the token") -> SecretStr:
    """Return the token, for a validator of a field; one that is too short, or invalid in a header, is an error."""
    fix = f"use {_MIN_TOKEN} or more letters and digits"
    if not re.fullmatch(r"[!-~]+", token.get_secret_value()):
        raise problem(f"{which} is empty or has spaces or unusual characters", fix)
    if len(token.get_secret_value()) < _MIN_TOKEN:
        raise problem(f"{which} is too short and easy to guess", fix)
    return token


Token = Annotated[SecretStr, AfterValidator(check_token)]
"""A token that riglm requires of its callers."""


def refuse_placeholder(token: SecretStr | None, key: str) -> None:
    """Raise an error when the token under `key`, which guards a public address, looks like one out of an example."""
    if token is not None and _PLACEHOLDER.fullmatch(token.get_secret_value()):
        fix = "use random characters, for example of `openssl rand -hex 32`"
        raise problem("the token that guards a public address is easy to guess", fix, key=key)


_MIB = 1024 * 1024
_MIN_KEY = 32


class TimeoutSettings(SettingsModel):
    """Seconds to wait for an upstream server."""

    connect: Seconds = 10
    """To open a connection to a URL."""
    initialize: Seconds = 30
    """For the opening exchange with a server."""
    list: Seconds = 30
    """For one page of a list."""
    grace: Seconds = 0.8
    """For the slowest of several servers, when a client connects and, if it follows list-changed notifications, when it
    lists tools. Other clients wait until shortly before their timeout (10 seconds if unknown), up to `list`.
    """
    call: Seconds = 900
    """For any other request; progress restarts the time."""
    call_max: Seconds = 14_400
    """For any other request in total."""
    shutdown: Seconds = 2
    """For a child process to exit after its input ended, and again after SIGTERM. Then it is killed."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.call_max < self.call:
            words = f"call_max ({self.call_max:g}) is less than call ({self.call:g})"
            raise problem(words, "make it larger", key="call_max")
        return self


class LimitSettings(SettingsModel):
    """Maximum sizes."""

    message_bytes: int = Field(default=64 * _MIB, ge=65_536)
    """Maximum bytes of a message of a server, or of a client on stdio."""
    request_bytes: int = Field(default=16 * _MIB, ge=65_536)
    """Maximum bytes of the body of a client's HTTP request."""
    sse_buffer: int = Field(default=16 * _MIB, ge=65_536)
    """Maximum bytes buffered for a client that does not read its stream."""


class SessionSettings(SettingsModel):
    """How calls are assigned to sessions. The first evidence found counts."""

    meta_keys: tuple[str, ...] = (
        "vscode.conversationId",
        "threadId",
        "openai/session",
        "ai.opencode/sessionID",
        "antigravity.google/conversation_id",
    )
    """Keys of `_meta` in which clients name the conversation, best first."""
    environment_keys: tuple[str, ...] = ("CLAUDE_CODE_SESSION_ID", "GROK_SESSION_ID")
    """Environment variables in which clients on stdio name it, best first."""
    header: str = Field(default="X-Riglm-Session", pattern=r"^[A-Za-z0-9-]+$")
    """The HTTP header in which a client may name its session."""
    idle_gap: Seconds = 1800
    """Seconds without a message after which an inferred session ends."""


def _refuse_results(include_results: bool) -> bool:
    if include_results:
        raise problem("results are never stored", "remove it, or set it to false")
    return include_results


class LoggingSettings(SettingsModel):
    """Logs on stderr, and whether arguments are stored."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum log level."""
    include_arguments: bool = True
    """Store arguments of calls as `privacy.arguments` specifies."""
    include_results: Annotated[bool, AfterValidator(_refuse_results)] = False
    """Must stay `false`: results are never stored."""


def _check_key(key: SecretStr) -> SecretStr:
    if len(key) < _MIN_KEY:
        fix = "use random characters, for example of `openssl rand -hex 32`"
        raise problem("the key is too short and easy to guess", fix)
    return key


class PrivacySettings(SettingsModel):
    """What is stored of a call."""

    arguments: Literal["hash", "raw", "none"] = "hash"
    """A keyed hash of the arguments, the arguments as they were sent, or nothing."""
    key: Annotated[SecretStr, AfterValidator(_check_key)] | None = None
    """Key of all hashes, for processes without a common data directory: 32 or more random characters. By default a file
    in the data directory, created at the first start.
    """


_PRESETS: Final = {
    "anthropic": Prices(cached_input=0.1, cache_write=1.25, output=5.0),
    "openai": Prices(cached_input=0.1, cache_write=1.0, output=8.0),
    "google": Prices(cached_input=0.1, cache_write=1.0, output=8.0),
    "uncached": Prices(cached_input=1.0, cache_write=1.0, output=5.0),
}


class PriceSettings(SettingsModel):
    """Prices of tokens relative to uncached input. Lists hold the tools whose listing pays at these prices."""

    preset: Literal["anthropic", "openai", "google", "uncached"] = "anthropic"
    """Ratios of a provider, for keys that are not given."""
    cached_input: float | None = Field(default=None, ge=0)
    """Price of a token that is read from the cache."""
    cache_write: float | None = Field(default=None, ge=0)
    """Price of a token that is written to the cache."""
    output: float | None = Field(default=None, ge=0)
    """Price of an output token."""
    search_reliability: float | None = Field(default=None, ge=0, le=1)
    """Probability that a model searches for a tool that it needs and does not see, and finds it. The lower, the longer
    lists are.
    """

    def prices(self) -> Prices:
        """Return the prices of the preset, replaced by those that are given."""
        return replace(_PRESETS[self.preset], **self.model_dump(exclude={"preset"}, exclude_none=True))


Days = Annotated[float, Field(ge=0, le=36_500)]
"""A number of days; 0 for no limit."""


class RetentionSettings(SettingsModel):
    """Number of days that records are kept; 0 keeps them permanently."""

    session_days: Days = 180
    """After the end of a session without kept calls and lists."""
    invocation_days: Days = 180
    """After a call."""
    exposure_days: Days = 90
    """After a list was shown."""
    learned_pair_days: Days = 365
    """After the last use that taught the pair."""

    @property
    def usage_days(self) -> float:
        """The number of days that both calls and lists are kept; 0 if permanently."""
        return min(filter(None, (self.invocation_days, self.exposure_days)), default=0)

    def expiry(self, now: float) -> Expiry:
        """What is too old at a time in seconds since the epoch."""

        def before(days: float) -> float | None:
            return now - days * DAY_SECONDS if days else None

        return Expiry(
            now=now,
            sessions=before(self.session_days),
            invocations=before(self.invocation_days),
            exposures=before(self.exposure_days),
            learned_pairs=before(self.learned_pair_days),
        )


class AuditSettings(SettingsModel):
    """A record of decisions without arguments: sessions, calls, refusals, changed tools, approvals and overrides."""

    file: str = ""
    """File to append JSON lines to; `-` for standard error."""


class TrustSettings(SettingsModel):
    """What happens when tools differ from their first or approved definition."""

    on_change: OnChange = "note"
    """`note`: report the change. `hold`: also list the approved definition, and refuse calls of changed and added tools
    until `riglm tools approve`. `block`: list and call no tool of the server until then.
    """


class TracingSettings(SettingsModel):
    """OpenTelemetry traces, sent over OTLP as the standard's `OTEL_...` variables specify."""

    enabled: bool | None = None
    """Create spans for requests of clients and to servers. By default if `OTEL_EXPORTER_OTLP_ENDPOINT` or
    `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` is set.
    """


OWN_KINDS: Final = ("frequency", "cooccurrence", "sequence", "embedding", "server", "hybrid")
"""The predictors that come with riglm."""


class PredictorSettings(SettingsModel):
    """The strategy that predicts the next tools."""

    kind: str = Field(
        default="hybrid",
        min_length=1,
        description=f"{', '.join(OWN_KINDS)}, or one of the entry-point group `riglm.predictors`.",
    )
    options: dict[str, Any] = Field(default={})
    """Options of the strategy."""


class LearningSettings(SettingsModel):
    """What is learned from recorded use."""

    scope: Literal["principal", "tenant", "instance"] = "principal"
    """Who shares learned state: the callers of one principal, or all callers of one store (`tenant` and `instance`)."""
    max_pairs: int = Field(default=5000, ge=1)
    """Maximum number of learned pairs in one process. The oldest and least confident are removed first. The store keeps
    four times as many.
    """

    @property
    def max_stored_pairs(self) -> int:
        """Maximum number of learned pairs in the store, which may have several callers."""
        return 4 * self.max_pairs


OWN_PROVIDERS: Final = ("fastembed", "static")
"""The embedders that come with riglm."""


class EmbedderSettings(SettingsModel):
    """The model that turns descriptions and contexts into vectors. Only `riglm embedder pull` uses a network."""

    provider: str = Field(default="fastembed", min_length=1)
    """`fastembed`: a model; `static`: hashed words, which take less memory and time; or an entry point of
    `riglm.embedders`.
    """
    options: dict[str, Any] = Field(default={})
    """Options of a plug-in."""
    model: str = Field(default="riglm/all-MiniLM-L6-v2-int8", min_length=1)
    """The installed model, or one of fastembed's, such as `BAAI/bge-small-en-v1.5`. While it is missing, the installed
    one is used, then hashed words. Knowledge has no fallback.
    """
    directory: str | None = Field(default=None, min_length=1)
    """Directory of downloaded models; by default in the user's cache."""
    deadline: Seconds = 10
    """Seconds to wait for the vector of one text."""
    start_deadline: Seconds = 30
    """Seconds to wait for the model to load."""
    idle: Seconds = 300
    """Seconds without a request after which the model process exits."""
    shared: bool = True
    """All riglm processes of a user share one model process (`fastembed` only)."""


def _url_of(server: str, form: str, start: str, *, has_host: bool = False) -> AfterValidator:
    """Return a validator for the URL of a server, in which others must not cut off a user or password too early."""

    def check(url: SecretStr) -> SecretStr:
        text = url.get_secret_value()
        is_of_server = re.match(start, text) is not None
        if is_of_server and not is_clearly_written(text):
            raise problem(
                "the user or the password in this URL contains a character that must be percent-encoded",
                "write / as %2F, ? as %3F, # as %23, @ as %40, [ as %5B, ] as %5D, % as %25 and a space as %20, in all "
                "parts before the @ of the host and after it",
            )
        if not is_of_server or (has_host and not _has_host(text)):
            raise problem(f"this is no URL of {server}", f"write it as {form}")
        return url

    return AfterValidator(check)


def _has_host(url: str) -> bool:
    """True for a URL with a host, and without a port that cannot exist."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


_CLICKHOUSE = _url_of("ClickHouse", "https://USER:PASSWORD@HOST:8443/DATABASE", "(?i)https?://", has_host=True)
_POSTGRESQL_FORM = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE; a SQLite file is named by storage.path"
_POSTGRESQL = _url_of("PostgreSQL", _POSTGRESQL_FORM, "postgres(ql)?://")
_REDIS = _url_of("Redis", "redis://USER:PASSWORD@HOST:PORT/0", "(rediss?|unix)://")


class SpoolSettings(SettingsModel):
    """The on-disk buffer for records while the store is unavailable or slow."""

    path: str | None = Field(default=None, min_length=1)
    """Directory; by default `spool` in the user's data directory."""
    max_bytes: int = Field(default=256 << 20, ge=1 << 20)
    """Maximum bytes for each process; further records are dropped."""


class UrlSettings(SettingsModel):
    """A section with the URL of a server, which may contain a password."""

    _kind_of_url: ClassVar[str] = ""
    """The `kind` that a URL selects."""

    @model_validator(mode="before")
    @classmethod
    def _select_kind(cls, given: Any) -> Any:
        if cls._kind_of_url and isinstance(given, dict) and given.get("url") and "kind" not in given:
            return {**given, "kind": cls._kind_of_url}
        return given

    def secrets(self) -> tuple[str, ...]:
        """The passwords in the URL, as written and as meant."""
        url: SecretStr | None = self.__dict__["url"]
        return passwords_of_url(url.get_secret_value()) if url else ()


class ClickHouseSettings(UrlSettings):
    """ClickHouse as an additional target of records, for analytics over years."""

    url: Annotated[SecretStr, _CLICKHOUSE] | None = None
    """URL of the HTTP interface: `https://USER:PASSWORD@HOST:8443/DATABASE`."""
    days: int = Field(default=730, ge=0)
    """Days for which ClickHouse keeps rows; 0 for permanently."""
    timeout: Seconds = 10
    """Seconds to wait for a response."""


class StorageSettings(UrlSettings):
    """The store of records."""

    _kind_of_url: ClassVar[str] = "postgresql"

    kind: Literal["sqlite", "postgresql", "memory"] = "sqlite"
    """`memory` stores nothing permanently. A `url` selects `postgresql`."""
    path: str | None = Field(default=None, min_length=1)
    """SQLite file; by default in the user's data directory."""
    url: Annotated[SecretStr, _POSTGRESQL] | None = None
    """URL of PostgreSQL: `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`."""
    timeout: Seconds = 5
    """Seconds to wait for a database lock or response before the store counts as unavailable."""
    durability: Literal["normal", "full"] = "normal"
    """With `normal`, stored records survive a crash of riglm; with `full` also a power loss."""
    spool: SpoolSettings = SpoolSettings.model_construct()

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.kind == "postgresql" and self.url is None:
            raise problem("PostgreSQL has no place", "add url: postgresql://... (or set RIGLM_STORAGE__URL)", key="url")
        if self.url is not None and self.path is not None:
            raise problem("a file and a URL are both given", "remove `path` or `url`", key="path")
        if self.kind != "postgresql" and self.url is not None:
            fix = "set the kind to postgresql, or remove it"
            raise problem(f"a URL is given for the kind {self.kind}", fix, key="url")
        return self

    @property
    def outlives_process(self) -> bool:
        """True if what is stored is there at the next start."""
        return self.kind != "memory"

    @property
    def is_durable(self) -> bool:
        """True if what is stored outlives a loss of power."""
        return self.durability == "full"


class StateSettings(UrlSettings):
    """The state of open sessions."""

    _kind_of_url: ClassVar[str] = "redis"

    kind: Literal["memory", "redis"] = "memory"
    """`memory` for one process, `redis` (or Valkey) for several behind one address. A `url` selects `redis`."""
    url: Annotated[SecretStr, _REDIS] | None = None
    """URL of Redis: `redis://USER:PASSWORD@HOST:PORT/0`, or `rediss://` for TLS."""
    prefix: str = Field(default="riglm", pattern=r"^[A-Za-z0-9:._-]{1,64}$")
    """Prefix of all keys in Redis."""
    deadline: Annotated[float, Field(ge=0.01, le=10)] = 0.1
    """Seconds that a call may wait for Redis in total; then it continues without."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.kind == "redis" and self.url is None:
            raise problem("Redis has no place", "add url: redis://... (or set RIGLM_STATE__URL)", key="url")
        if self.kind == "memory" and self.url is not None:
            raise problem("a URL is given for the kind memory", "set the kind to redis, or remove it", key="url")
        return self
