"""How clients reach riglm over HTTP."""

import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from riglm.domain.access import is_loopback, is_protected
from riglm.domain.schemas.section import (
    Seconds,
    SecretMap,
    SettingsModel,
    Token,
    check_token,
    problem,
    refuse_placeholder,
)

BEARER: Final = "bearer"
"""The principal of callers that send `downstream.token`."""

_PRINCIPAL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


def _check_url(url: str) -> str:
    if url.startswith("http://") and not is_protected(url):
        raise problem(f"{url!r} can be changed on the way", "use https")
    return url


_KeysUrl = Annotated[str, AfterValidator(_check_url)]


def _check_scopes(scopes: tuple[str, ...]) -> tuple[str, ...]:
    for scope in scopes:
        if not re.fullmatch(r"[!#-\[\]-~]+", scope):
            raise problem(f"{scope!r} is not one scope", "make one entry of each, without quotation marks")
    return scopes


def _check_callers(tokens: SecretMap) -> SecretMap:
    for name, token in tokens.items():
        if not _PRINCIPAL.fullmatch(name) or name == BEARER:
            words = f"{name!r} cannot name a caller"
            raise problem(words, f"use up to 64 letters, digits, '.', '_', '@' and '-', and not {BEARER!r}")
        check_token(token, f"the token of {name}")
    return tokens


class TokenIssuerSettings(SettingsModel):
    """Access tokens of an OpenID provider. riglm verifies them, and refers clients without one to the provider."""

    issuer: _KeysUrl = Field(pattern=r"^https?://[!-~]+$")
    """The issuer's URL, as in `iss` of its tokens."""
    audience: str = Field(pattern=r"^[!-~]+$")
    """What `aud` of a token must contain: the URL of the MCP endpoint, or the provider's name for this API. With
    `/PROFILE` behind it, a token is for this profile only.
    """
    jwks: _KeysUrl = ""
    """URL or file of the issuer's keys; by default from its metadata."""
    scopes: Annotated[tuple[str, ...], AfterValidator(_check_scopes)] = ()
    """Scopes that a token must have."""
    groups_claim: str = Field(default="groups", min_length=1)
    """Claim with the caller's groups, for `access`; dots lead into objects (`realm_access.roles`)."""


class DownstreamSettings(SettingsModel):
    """The client side of `riglm serve`."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """Address to listen on. Any but loopback requires a token."""
    port: int = Field(default=8700, ge=0, le=65_535)
    """Port to listen on; 0 for a free one."""
    path: str = Field(default="/mcp", pattern=r"^/[!-~]*$")
    """Path of the Streamable HTTP endpoint."""
    transport: Literal["http", "sse", "both"] = "http"
    """Streamable HTTP, the older HTTP+SSE, or both."""
    token: Token | None = None
    """Token that clients must send as `Authorization: Bearer TOKEN`."""
    tokens: Annotated[SecretMap, AfterValidator(_check_callers)] = Field(default_factory=dict)
    """Tokens of callers by name. Each caller is a principal with separate sessions, learned state and knowledge."""
    auth: TokenIssuerSettings | None = None
    """Clients may send an access token of this OpenID provider."""
    allowed_hosts: tuple[str, ...] = ()
    """Host headers accepted in addition to loopback."""
    allowed_origins: tuple[str, ...] = ()
    """Origin headers accepted in addition to loopback. Pages of both may read responses (CORS)."""
    session_idle: Seconds = 1800
    """Seconds without a message before a session is closed."""
    max_sessions: int = Field(default=10_000, ge=1)
    """Maximum number of open sessions."""
    process: str = Field(default="", pattern=r"^[A-Za-z0-9_-]{0,32}$")
    """Start of the ids of MCP sessions, by which a load balancer finds the process; a random one if empty."""

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        of_token: dict[str, str] = {}
        for name, token in self._named():
            other = of_token.setdefault(token.get_secret_value(), name)
            if other != name:
                raise problem(f"{other} and {name} have the same token", "give each a different one", key="tokens")
        if is_loopback(self.host):
            return self
        if not of_token and self.auth is None:
            words = f"{self.host} can be reached from other machines and no token is set"
            fix = "set downstream.token (for example to ${RIGLM_TOKEN}) or downstream.auth, or listen on 127.0.0.1"
            raise problem(words, fix, key="host")
        refuse_placeholder(self.token, "token")
        for token in self.tokens.values():
            refuse_placeholder(token, "tokens")
        return self

    @property
    def principals(self) -> dict[str, str]:
        """The token of each principal that has one, in the clear."""
        return {name: token.get_secret_value() for name, token in self._named()}

    def _named(self) -> Iterator[tuple[str, SecretStr]]:
        if self.token is not None:
            yield BEARER, self.token
        yield from self.tokens.items()


class ControlSettings(SettingsModel):
    """The control API with metrics and the dashboard, on a separate port."""

    enabled: bool = False
    """Serve them, as `riglm serve --control` does."""
    host: str = Field(default="127.0.0.1", min_length=1)
    """Address to listen on. Any but loopback requires tokens: `token`, or those of `riglm control token`."""
    port: int = Field(default=8701, ge=0, le=65_535)
    """Port to listen on; 0 for a free one."""
    token: Token | None = None
    """Token for changes, sent as `Authorization: Bearer TOKEN`. By default a generated one, which is not required on
    loopback.
    """
    read_token: Token | None = None
    """Token for reading only."""
    allowed_hosts: tuple[str, ...] = ()
    """Host headers accepted in addition to loopback."""
    allowed_origins: tuple[str, ...] = ()
    """Origins whose pages may use the API, in addition to the dashboard."""

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        if self.token is not None and self.token == self.read_token:
            fix = "choose a different one for reading"
            raise problem("`token` and `read_token` are the same", fix, key="read_token")
        if not is_loopback(self.host):
            refuse_placeholder(self.token, "token")
            refuse_placeholder(self.read_token, "read_token")
        return self
