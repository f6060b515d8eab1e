"""How one upstream server is written in a configuration."""

import re
from base64 import b64encode
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from riglm.domain import upstream
from riglm.domain.schemas.section import Seconds, SecretMap, SettingsModel, problem
from riglm.domain.tool_pin import OnChange

_ALIASES = {"serverUrl": "url", "httpUrl": "url", "environment": "env", "transport": "type"}
_KINDS = {
    "streamable-http": "http",
    "streamableHttp": "http",
    "streamable_http": "http",
    "remote": "http",
    "local": "stdio",
}
_UNENCODABLE = re.compile(r"[\x00\ud800-\udc7f\udd00-\udfff]")
"""What no program can be given; the surrogates between these are bytes that are no UTF-8."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def _as_words(value: object) -> object:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list | tuple):
        raise problem("this is neither a program nor a list", "name the program, or write [program, argument]")
    return value


def _authorization_server(url: str) -> str:
    if url and not re.fullmatch(r"https?://[^@\s/?#]+(/[!-~]*)?", url):
        raise problem("this is not the URL of an authorization server", "write https://HOST/PATH, without a user name")
    return url


IssuerUrl = Annotated[str, AfterValidator(_authorization_server)]
"""A URL of an authorization server, which has no password in it."""


class IdentityProviderSettings(SettingsModel):
    """A company's identity provider, for the grant `identity_assertion`."""

    token_endpoint: IssuerUrl
    """URL where the ID token is exchanged (RFC 8693)."""
    client_id: str
    """riglm's client there."""
    id_token_file: str
    """The file with the user's ID token, which is read for each exchange."""


_NEEDED: Final[dict[upstream.GrantType, tuple[str, ...]]] = {
    "authorization_code": (),
    "client_credentials": ("client_id", "issuer"),
    "identity_assertion": ("client_id", "client_secret", "issuer", "identity_provider"),
}


def _check_document(url: str) -> str:
    if url and not re.fullmatch(r"https://[^/\s]+/\S+", url):
        raise problem("this is not the URL of a client id metadata document", "write https://HOST/PATH")
    return url


def _check_token(token: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[!-~]+", token.get_secret_value()):
        words = "the token is empty or has spaces or unusual characters"
        raise problem(words, "give the token as the server issued it")
    return token


class AuthSettings(SettingsModel):
    """Authorization at an upstream server: a fixed token, or tokens that this OAuth client obtains."""

    type: Literal["bearer"] = "bearer"
    """`Authorization: Bearer TOKEN`."""
    token: Annotated[SecretStr, AfterValidator(_check_token)] | None = None
    """A fixed token; best written as `${VARIABLE}`."""
    grant_type: upstream.GrantType = "authorization_code"
    """`authorization_code` is `riglm login`. The others need no user."""
    accounts: Literal["shared", "caller"] = "shared"
    """`shared`: all clients use one account; `caller`: each caller of `riglm serve` uses a separate one, which `riglm
    login NAME --principal CALLER` signs in.
    """
    client_id: str = ""
    """The OAuth client; by default `riglm login` registers dynamically."""
    client_metadata_url: Annotated[str, AfterValidator(_check_document)] = ""
    """A client id metadata document that you host, in place of `client_id`; used where it is supported."""
    client_secret: SecretStr | None = None
    """The secret of that client, if it has one."""
    private_key_file: str = ""
    """A PEM file, in place of `client_secret` (`private_key_jwt`, for `client_credentials`)."""
    issuer: IssuerUrl = ""
    """The only authorization server that this client is used at. By default the one that the server names, if its
    endpoints are on one host and, with `client_secret`, you confirm it at `riglm login`.
    """
    scopes: tuple[str, ...] = ()
    """Scopes to request in place of those that the server names."""
    identity_provider: IdentityProviderSettings | None = None
    """Where the grant `identity_assertion` gets its assertions."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        of_client = self.model_fields_set - {"type", "token"}
        if self.token is not None and of_client:
            raise problem("`token` does not go with the keys of an OAuth client", "keep one kind")
        if self.token is None and not of_client:
            fix = "add it, or `client_id`, `client_metadata_url` or `scopes` for `riglm login`"
            raise problem("this key is missing", fix, key="token")
        if not self.client_id and (self.client_secret is not None or self.issuer or self.private_key_file):
            fix = "add it, or remove `client_secret`, `private_key_file` and `issuer`"
            raise problem("this key is missing", fix, key="client_id")
        if self.client_id and self.client_metadata_url:
            raise problem("`client_id` and `client_metadata_url` both name the client", "keep one")
        if self.accounts == "caller" and self.grant_type != "authorization_code":
            words = f"the grant type `{self.grant_type}` obtains no tokens of a caller"
            raise problem(words, "remove it", key="accounts")
        needed = _NEEDED[self.grant_type]
        for key in needed:
            if not getattr(self, key):
                raise problem("this key is missing", f"add it: the grant type `{self.grant_type}` needs it", key=key)
        is_credentials = self.grant_type == "client_credentials"
        if is_credentials and bool(self.client_secret) == bool(self.private_key_file):
            fix = "keep one of `client_secret` and `private_key_file`"
            raise problem("the client authenticates by one of two keys", fix, key="client_secret")
        used = (*needed, "private_key_file") if is_credentials else needed
        for key in ("private_key_file", "identity_provider"):
            if getattr(self, key) and key not in used:
                raise problem(f"the grant type `{self.grant_type}` does not use this key", "remove it", key=key)
        return self

    def client(self) -> upstream.OAuthClient:
        """Return the client in its normal form, its secret in the clear."""
        provider = self.identity_provider
        return upstream.OAuthClient(
            grant_type=self.grant_type,
            is_per_caller=self.accounts == "caller",
            id=self.client_id,
            metadata_url=self.client_metadata_url,
            secret=self.client_secret.get_secret_value() if self.client_secret else "",
            private_key_file=self.private_key_file,
            issuer=self.issuer,
            scopes=self.scopes,
            identity_provider=upstream.IdentityProvider(**provider.model_dump()) if provider else None,
        )


_METAMCP = re.compile(r"(?P<url>https?://[^?#]+)/metamcp/(?P<endpoint>[^/?#]+)/(?:mcp|sse)/?")


class MetaMcpSettings(SettingsModel):
    """The account with which riglm applies overrides to the MetaMCP namespace behind the URL."""

    email: str = Field(min_length=1)
    """The email address of the account."""
    password: SecretStr
    """Its password; best written as `${VARIABLE}`."""
    interval: Seconds = 10
    """Seconds between two requests for the state of the namespace."""


class ServerTimeoutSettings(SettingsModel):
    """Seconds to wait for this server, in place of `timeouts`."""

    initialize: Seconds | None = None
    """In place of `timeouts.initialize`."""
    list: Seconds | None = None
    """In place of `timeouts.list`."""
    call: Seconds | None = None
    """In place of `timeouts.call`; `timeouts.call_max` is at least as long."""


def _check_words(words: tuple[str, ...]) -> tuple[str, ...]:
    if any(_UNENCODABLE.search(word) for word in words):
        raise problem("a NUL character or half a surrogate pair cannot be part of a command line", "remove it")
    return words


def _check_command(command: tuple[str, ...]) -> tuple[str, ...]:
    if command and not command[0].strip():
        raise problem("the command is empty", "name the program to start")
    return _check_words(command)


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    if url and (parts.scheme not in {"http", "https"} or not host or re.search(r"[\s\x00-\x1f\ud800-\udfff]", url)):
        raise problem("this is not a URL that riglm can reach", "write http://HOST:PORT/PATH or https://HOST/PATH")
    return url


def _check_variables(env: SecretMap) -> SecretMap:
    for name, value in env.items():
        if not name or "=" in name or _UNENCODABLE.search(name + value.get_secret_value()):
            raise problem(f"{name!r} cannot be set as an environment variable", "use letters, digits and _", key=name)
    return env


def _check_headers(headers: SecretMap) -> SecretMap:
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name):
            raise problem(f"{name!r} is not the name of a header", "use letters, digits and -", key=name)
        if not re.fullmatch(r"[\t -~]*", value.get_secret_value()):
            raise problem("a header's value is one line of plain characters", "remove line breaks", key=name)
    return headers


class ServerSettings(SettingsModel):
    """An upstream server: a command or a URL."""

    type: upstream.TransportKind | None = None
    """Derived from `command` or `url` when absent; a URL that ends in `/sse` means sse."""
    command: Annotated[tuple[str, ...], BeforeValidator(_as_words), AfterValidator(_check_command)] = Field(
        default=(), json_schema_extra={"type": ["string", "array"]}
    )
    """Program to start, or the program with its arguments as a list."""
    args: Annotated[tuple[str, ...], AfterValidator(_check_words)] = ()
    """Arguments of the program; no shell reads them."""
    env: Annotated[SecretMap, AfterValidator(_check_variables)] = Field(default={})
    """Variables added to the inherited environment of the program."""
    cwd: str | None = None
    """The directory in which the program starts."""
    url: Annotated[str, AfterValidator(_check_url)] = ""
    """URL of the server."""
    auth: AuthSettings | None = None
    """How to authorise towards the URL."""
    headers: Annotated[SecretMap, AfterValidator(_check_headers)] = Field(default={})
    """Headers sent with every request to the URL."""
    disabled: bool = False
    """Do not use this entry."""
    sharing: upstream.ProcessSharing = "auto"
    """`shared`: one process or link for all clients of a principal; `session`: one each."""
    max_processes: int = Field(default=32, ge=1, le=10_000)
    """Maximum number of child processes of this server for each principal. With `sharing: auto`, further clients share
    one more.
    """
    on_change: OnChange | None = None
    """Overrides `trust.on_change` for this server."""
    timeouts: ServerTimeoutSettings | None = None
    """How long riglm waits for this server; `riglm init` keeps what the client's file says."""
    metamcp: MetaMcpSettings | None = None
    """Manage the MetaMCP namespace that the URL serves; by default riglm does not."""

    @model_validator(mode="before")
    @classmethod
    def _in_our_words(cls, raw: Any) -> Any:
        """Clients write the same things under several names; one name each goes on."""
        if not isinstance(raw, dict):
            return raw
        ours = dict(raw)
        for alias, key in _ALIASES.items():
            if alias not in ours:
                continue
            if key in ours:
                raise problem(f"`{alias}` and `{key}` say the same thing", f"keep `{key}`", key=alias)
            ours[key] = ours.pop(alias)
        if "httpUrl" in raw:
            ours.setdefault("type", "http")
        if isinstance(ours.get("type"), str):
            ours["type"] = _KINDS.get(ours["type"], ours["type"])
        return ours

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if bool(self.command) == bool(self.url):
            both = "gives both `command` and `url`" if self.url else "gives neither `command` nor `url`"
            raise problem(f"the server {both}", "give `command:` for a program or `url:` for a running server")
        if self.type is not None and (self.type == "stdio") is not bool(self.command):
            wrong, right = ("url", "http or sse") if self.url else ("command", "stdio")
            fix = f"make it {right}, or leave it out"
            raise problem(f"type {self.type} does not go with `{wrong}`", fix, key="type")
        foreign = ("auth", "headers", "metamcp") if self.command else ("args", "env", "cwd")
        for key in foreign:
            if getattr(self, key):
                given = "command" if self.command else "url"
                raise problem(f"`{key}` does not go with `{given}`", "remove it", key=key)
        ways = [bool(self.auth), "authorization" in map(str.lower, self.headers), "@" in urlsplit(self.url).netloc]
        if sum(ways) > 1:
            fix = "keep one of `auth`, the header, and user:password in the URL"
            raise problem("the authorisation is given twice", fix)
        if self.metamcp is not None and not _METAMCP.fullmatch(_without_user(self.url)[0]):
            fix = "write http://HOST:12008/metamcp/ENDPOINT/mcp as `url`, or remove this key"
            raise problem("the URL is not that of an endpoint of MetaMCP", fix, key="metamcp")
        return self

    @property
    def kind(self) -> upstream.TransportKind:
        """The transport of the server."""
        of_url: upstream.TransportKind = "sse" if urlsplit(self.url).path.rstrip("/").endswith("/sse") else "http"
        return self.type or ("stdio" if self.command else of_url)

    def spec(self, name: str) -> upstream.UpstreamSpec:
        """The server in its normal form, its secrets in the clear."""
        headers = {key: value.get_secret_value() for key, value in self.headers.items()}
        url, basic = _without_user(self.url)
        if self.auth is not None and self.auth.token is not None:
            headers["Authorization"] = f"Bearer {self.auth.token.get_secret_value()}"
        elif basic:
            headers["Authorization"] = f"Basic {basic}"
        gateway = None
        if self.metamcp is not None and (place := _METAMCP.fullmatch(url)):
            account, password = self.metamcp, self.metamcp.password.get_secret_value()
            gateway = upstream.GatewayAccount(
                **place.groupdict(), email=account.email, password=password, interval_seconds=account.interval
            )
        return upstream.UpstreamSpec(
            name=name,
            kind=self.kind,
            command=self.command + self.args,
            env={key: value.get_secret_value() for key, value in self.env.items()},
            cwd=self.cwd,
            url=url,
            headers=headers,
            oauth=self.auth.client() if self.auth else upstream.OAuthClient(),
            sharing=self.sharing,
            max_processes=self.max_processes,
            on_change=self.on_change,
            timeouts=self.timeouts.model_dump(exclude_none=True) if self.timeouts else {},
            gateway=gateway,
        )

    def secrets(self) -> tuple[SecretStr, ...]:
        """Return the secrets with which riglm authenticates."""
        of_auth = (self.auth.token, self.auth.client_secret) if self.auth else ()
        return tuple(each for each in (*of_auth, self.metamcp and self.metamcp.password) if each is not None)


def _without_user(url: str) -> tuple[str, str]:
    """The URL without user:password, and these as Basic credentials."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    basic = b64encode(unquote(user).encode()).decode() if at else ""
    return urlunsplit(parts._replace(netloc=host)), basic
