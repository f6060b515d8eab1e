"""The configuration of the store."""

import re
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from riglm.domain.redaction import is_clearly_written, passwords_of_url
from riglm.domain.schemas.base import Seconds, SettingsModel, problem


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
