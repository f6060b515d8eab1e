"""The configuration of the control API."""

from typing import Self

from pydantic import Field, SecretStr, field_validator, model_validator

from riglm.domain.access import is_loopback
from riglm.domain.schemas.base import Section, problem
from riglm.domain.schemas.token import refuse_placeholder, usable_token


class Control(Section):
    """The control API, its metrics and its page, on a separate port."""

    enabled: bool = Field(default=False, description="Serve them; `riglm serve --control` does it as well.")
    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="The address to listen on; any but loopback needs tokens: `token`, or those that `riglm control "
        "token` makes.",
    )
    port: int = Field(default=8701, ge=0, le=65_535, description="The port to listen on; 0 takes a free one.")
    token: SecretStr | None = Field(
        default=None,
        description="Clients must send it as `Authorization: Bearer TOKEN` to change anything. By default the token "
        "that riglm made, in the data directory; on loopback none is needed then.",
    )
    read_token: SecretStr | None = Field(
        default=None, description="A second token, with which one may look and change nothing."
    )
    allowed_hosts: tuple[str, ...] = Field(default=(), description="Host headers accepted in addition to loopback.")
    allowed_origins: tuple[str, ...] = Field(
        default=(), description="Origins whose pages may use the API from a browser, in addition to riglm's page."
    )
    allow_upstream_changes: bool = Field(
        default=False,
        description="Whether `PUT /config` may change `upstream` and `mcpServers`: commands that riglm starts, and "
        "where it sends credentials.",
    )

    @field_validator("token", "read_token")
    @classmethod
    def _usable(cls, token: SecretStr | None) -> SecretStr | None:
        return usable_token(token)

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        if self.token is not None and self.token == self.read_token:
            raise problem(
                "`token` and `read_token` are the same", "choose a different one for reading", key="read_token"
            )
        if not is_loopback(self.host):
            refuse_placeholder(self.token, "token")
            refuse_placeholder(self.read_token, "read_token")
        return self
