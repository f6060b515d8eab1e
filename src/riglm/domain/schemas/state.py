"""The configuration of what several riglm processes share of their sessions."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from riglm.domain.schemas.base import Section, problem
from riglm.domain.schemas.credentials import clearly_written
from riglm.domain.secret import passwords_of_url

_SCHEMES = ("redis://", "rediss://", "unix://")


class State(Section):
    """Where sessions are kept while they last."""

    kind: Literal["memory", "redis"] = Field(
        default="memory",
        description="`memory` is for one process, `redis` (or Valkey) for several behind one address; a `url` chooses "
        "`redis` by itself.",
    )
    url: SecretStr | None = Field(
        default=None, description="Where Redis is: `redis://USER:PASSWORD@HOST:PORT/0`, or `rediss://` for TLS."
    )
    prefix: str = Field(
        default="riglm", pattern=r"^[A-Za-z0-9:._-]{1,64}$", description="How every key in Redis begins."
    )
    deadline: Annotated[float, Field(ge=0.01, le=10)] = Field(
        default=0.1, description="A call waits no longer for Redis in all, in seconds; then it goes on without."
    )

    @field_validator("url")
    @classmethod
    def _is_of_redis(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not url.get_secret_value().startswith(_SCHEMES):
            raise problem("this is no URL of Redis", "write it as redis://USER:PASSWORD@HOST:PORT/0")
        return clearly_written(url)

    @model_validator(mode="before")
    @classmethod
    def _kind_of_the_url(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("url") and "kind" not in given:
            return {**given, "kind": "redis"}
        return given

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.kind == "redis" and self.url is None:
            raise problem("Redis has no place", "add url: redis://... (or set RIGLM_STATE__URL)", key="url")
        if self.kind == "memory" and self.url is not None:
            raise problem("a URL is given for the kind memory", "set the kind to redis, or remove it", key="url")
        return self

    def secrets(self) -> tuple[str, ...]:
        """The passwords in the URL, as written and as meant."""
        return passwords_of_url(self.url.get_secret_value()) if self.url else ()
