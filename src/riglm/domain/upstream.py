"""An upstream: one server behind riglm, and how to reach it."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final, Literal
from urllib.parse import urlsplit

from riglm.domain.access import is_loopback
from riglm.domain.redaction import RUNNER_VERBS, RUNNERS, mask_address
from riglm.domain.tool_pin import OnChange

TransportKind = Literal["stdio", "http", "sse"]
"""The transport of a server: a child process, Streamable HTTP, or the older HTTP+SSE."""

ProcessSharing = Literal["auto", "session", "shared"]
"""Whether clients share one process or link of the server, or each has a separate one; `auto` decides by the era."""

LinkState = Literal["idle", "opening", "open", "broken"]
"""Connection state: not requested yet or any more, first response pending, usable, or the last attempt failed."""


FRAMED_BY_HEADERS: Final = "Content-Length headers"
FRAMED_OVER_LINES: Final = "several lines a message"
"""Framings of a stdio server that MCP does not have: its messages are one line each."""

GrantType = Literal["authorization_code", "client_credentials", "identity_assertion"]
"""How tokens are obtained: a user signs in, the client authenticates, or a company's identity provider vouches."""


AccountKey = tuple[str, str, str]
"""The name and the URL of a server, and the caller that the account is for, empty for all callers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityProvider:
    """A company's identity provider, which exchanges the ID token in a file for an assertion (RFC 8693)."""

    token_endpoint: str
    client_id: str
    id_token_file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthClient:
    """The configured client with which riglm obtains the access tokens of a server.

    Without `id`, riglm is identified by the document at `metadata_url`, or is registered dynamically. The client is
    used at the authorization server `issuer` only, if that is set. With `is_per_caller`, each caller of riglm has
    separate tokens. `private_key_file` is the PEM file with which a
    client without a secret signs. `scopes` replace those that the server asks for. `identity_provider` is set for the
    grant `identity_assertion`.
    """

    grant_type: GrantType = "authorization_code"
    is_per_caller: bool = False
    id: str = ""
    metadata_url: str = ""
    secret: str = field(default="", repr=False)
    private_key_file: str = ""
    issuer: str = ""
    scopes: Sequence[str] = ()
    identity_provider: IdentityProvider | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAccount:
    """The account with which riglm manages a namespace of MetaMCP, and the seconds between two requests for its state.

    `url` is the address of MetaMCP, `endpoint` the name of the endpoint that serves the namespace.
    """

    url: str
    endpoint: str
    email: str
    password: str = field(repr=False)
    interval_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSpec:
    """One server in its normal form, every variable expanded and every secret in place.

    `command` (the words of the command line, run without a shell), `env` (added to riglm's environment) and `cwd`
    belong to `stdio`; `url` and `headers` (authorisation resolved into `Authorization`) to `http` and `sse`.
    `oauth` is the client that obtains tokens for a URL, `principal` the caller for whom it does if each has separate
    ones. `max_processes` bounds the children of one `stdio` server.
    `on_change` is what happens when its tools change, None
    for what the configuration says for all. `timeouts` are the seconds, by name, that replace those for all servers.
    `gateway` is set if riglm manages the tools of the gateway that the server
    is. What may hold a secret is left out of the repr.
    """

    name: str
    kind: TransportKind
    command: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    oauth: OAuthClient = OAuthClient()
    principal: str = ""
    sharing: ProcessSharing = "auto"
    max_processes: int = 32
    on_change: OnChange | None = None
    timeouts: Mapping[str, float] = field(default_factory=dict)
    gateway: GatewayAccount | None = None

    @property
    def has_credentials(self) -> bool:
        """True if the configuration contains an `Authorization` header, so that no account is used."""
        return any(name.lower() == "authorization" for name in self.headers)

    @property
    def is_unattended(self) -> bool:
        """True if riglm obtains tokens without a user."""
        return self.oauth.grant_type != "authorization_code"

    @property
    def sign_in_hint(self) -> str:
        """The start of a hint after a refusal: the command that signs in, if a user's account would be used."""
        if self.has_credentials or self.is_unattended:
            return ""
        return f"run `{self.sign_in_command}`, or "

    @property
    def sign_in_command(self) -> str:
        """The command with which the user of the account signs in."""
        caller = f" --principal {shlex.quote(self.principal)}" if self.principal else ""
        return f"riglm login {self.name}{caller}"

    @property
    def account_key(self) -> AccountKey:
        """What identifies the account that is used."""
        return self.name, self.url, self.principal

    @property
    def place(self) -> str:
        """Where the server is, without anything secret: the program of a command, or the URL without what may be."""
        return self.command[0] if self.kind == "stdio" else mask_address(self.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamHealth:
    """The condition of one server. With several links to it, one that is open is enough to be `open`.

    A server reached by separate requests (Streamable HTTP) is `open` if it answered the last one. `since`
    is when this state began, in seconds since the epoch; `last_error` is the last failure, repaired or not.
    """

    name: str
    state: LinkState = "idle"
    since: float = 0.0
    last_error: str | None = None


def derive_name(command: Sequence[str], url: str = "") -> str:
    """A short name for a server that was given none: its host, its package, its script or its program.

    `npx -y @scope/server-memory@1.2` gives `server-memory`, `python -m my_server` gives `my_server`. Names that many
    servers have get their directory or port: `node /srv/notes/dist/index.js` gives `notes-index`.
    """
    text = _host(url) if url else _program(command)
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-")[:48]
    return slug or "upstream"


def _host(url: str) -> str:
    parts = urlsplit(url)
    host = parts.hostname or ""
    return f"{host}-{parts.port}" if parts.port and is_loopback(host) else host


def _program(command: Sequence[str]) -> str:
    first = PurePath(command[0]).name if command else ""
    if not RUNNERS.fullmatch(first):
        return _qualified(command[0], first) if command else first
    words = (word for word in command[1:] if not word.startswith("-") and word not in RUNNER_VERBS)
    return _package(next(words, first))


def _package(word: str) -> str:
    name = word.rsplit("/", 1)[-1]
    return _qualified(word, re.sub(r"\.(py|m?js|ts)$", "", re.split(r"[@:=<>~]", name, maxsplit=1)[0]))


_COMMON: Final = frozenset(
    {"__main__", "app", "bin", "build", "cli", "dist", "index", "lib", "main", "mcp", "out", "run", "server", "src"}
)
_NO_FOLDERS: Final = frozenset({"", ".", "..", "/"})


def _qualified(path: str, name: str) -> str:
    """Return the name, after the nearest directory with a distinctive name if many programs have it."""
    folders = reversed(PurePath(path).parts[:-1]) if name in _COMMON else ()
    folder = next((each for each in folders if each not in _COMMON | _NO_FOLDERS), "")
    return f"{folder}-{name}" if folder else name
