"""The smaller sections of the configuration."""

from dataclasses import replace
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from riglm.domain.list_plan import Prices
from riglm.domain.retention import DAY_SECONDS, Expiry
from riglm.domain.schemas.base import Seconds, SettingsModel, problem
from riglm.domain.tool_pin import OnChange

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
