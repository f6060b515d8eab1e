"""How clients reach riglm over HTTP."""

from typing import Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from riglm.domain.access import is_loopback
from riglm.domain.schemas.base import Seconds, Section, problem
from riglm.domain.schemas.token import refuse_placeholder, usable_token


class Downstream(Section):
    """The client side of `riglm serve`."""

    host: str = Field(
        default="127.0.0.1", min_length=1, description="The address to listen on; any but loopback needs a token."
    )
    port: int = Field(default=8700, ge=0, le=65_535, description="The port to listen on; 0 takes a free one.")
    path: str = Field(default="/mcp", pattern=r"^/[!-~]*$", description="The path of the Streamable HTTP endpoint.")
    transport: Literal["http", "sse", "both"] = Field(
        default="http", description="Streamable HTTP, the older HTTP+SSE, or both."
    )
    token: SecretStr | None = Field(default=None, description="Clients must send it as `Authorization: Bearer TOKEN`.")
    allowed_hosts: tuple[str, ...] = Field(default=(), description="Host headers accepted besides the loopback ones.")
    allowed_origins: tuple[str, ...] = Field(
        default=(), description="Origin headers accepted besides the loopback ones."
    )
    session_idle: Seconds = Field(default=1800, description="A session that is silent for so many seconds is closed.")
    max_sessions: int = Field(default=10_000, ge=1, description="At most so many open sessions.")

    @field_validator("token")
    @classmethod
    def _usable(cls, token: SecretStr | None) -> SecretStr | None:
        return usable_token(token)

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        if is_loopback(self.host):
            return self
        if self.token is None:
            raise problem(
                f"{self.host} can be reached from other machines and no token is set",
                "set downstream.token (for example to ${RIGLM_TOKEN}), or listen on 127.0.0.1",
                key="host",
            )
        refuse_placeholder(self.token, "token")
        return self
