"""uvicorn, with deadlines for peers that dawdle and a stop that ends."""

import asyncio
import contextlib
import hmac
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from riglm.adapters.mcp.downstream.http_request import CUT
from riglm.domain.access import AllowedOrigins, bearer_token, is_loopback_origin

HEAD_SECONDS: Final = 30.0
"""Seconds to wait for the head of a request after its first byte, or after the connection was made."""

STALL_SECONDS: Final = 60.0
"""Seconds after which a client that reads nothing of a full buffer is disconnected."""

MAX_HEAD_LENGTH: Final = 1 << 16
"""The most bytes of a request's line and headers."""

_HEADER_BYTES: Final = 32
"""Bytes that a header counts in addition to its text, so that many small ones count as well."""

_BACKLOG: Final = 1024
_KEEP_ALIVE_SECONDS: Final = 75
_LOOK_SECONDS: Final = 0.1


_SINGLE_HEADERS: Final = frozenset(
    {b"authorization", b"content-type", b"host", b"mcp-session-id", b"origin", b"riglm-profile", b"transfer-encoding"}
)


class InvalidHeadError(Exception):
    """The head of a request is ambiguous or over the limit; the parser turns this into a 400."""


class BoundedHttpProtocol(HttpToolsProtocol):
    """One client's connection."""

    _head_timer: asyncio.TimerHandle | None
    _stall_timer: asyncio.TimerHandle | None
    _head_size: int
    _has_headers: bool

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a request."""
        super().connection_made(transport)
        self._head_size = 0
        self._head_timer = self.loop.call_later(HEAD_SECONDS, transport.abort)
        self._stall_timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing more."""
        for timer in (self._head_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Expect the head, and offer the application to break the connection."""
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)
        self._head_size = 0
        self._has_headers = False
        super().on_message_begin()
        self.scope["extensions"] = {CUT: {"cut": self.transport.abort}}

    def on_url(self, url: bytes) -> None:
        """Take a part of the request's line."""
        self._head_size += len(url)
        if self._head_size > MAX_HEAD_LENGTH:
            raise InvalidHeadError
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers of a chunked body are ignored."""
        self._head_size += len(name) + len(value) + _HEADER_BYTES
        if self._head_size > MAX_HEAD_LENGTH:
            raise InvalidHeadError
        if not self._has_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there.

        Raises:
            InvalidHeadError: a header that decides what happens is there twice, the body has another transfer coding
                than chunked, or the target names another host than the Host header.
        """
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        self._has_headers = True
        single = [(name, value) for name, value in self.headers if name in _SINGLE_HEADERS]
        found = dict(single)
        coding = found.get(b"transfer-encoding")
        is_repeated = len(found) != len(single)
        is_coded = coding is not None and (coding.lower() != b"chunked" or self.parser.get_http_version() == "1.0")
        is_of_other = self.url[:1] != b"/" and _authority(self.url) != found.get(b"host", b"").lower()
        if is_repeated or is_coded or is_of_other:
            raise InvalidHeadError
        super().on_headers_complete()

    def pause_writing(self) -> None:
        """Expect the client to read."""
        if self._stall_timer is None:
            self._stall_timer = self.loop.call_later(STALL_SECONDS, self.transport.abort)
        super().pause_writing()

    def resume_writing(self) -> None:
        """The client reads."""
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        super().resume_writing()


def _authority(url: bytes) -> bytes:
    """The host and port of an absolute URL, in lower case."""
    return url.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0].lower()


class UvicornServer(uvicorn.Server):
    """A server that is stopped by `should_exit` alone, and can break what does not end by itself."""

    def __init__(self, app: Any, *, drain_seconds: float) -> None:
        """A server for an ASGI application; connections that are busy get `drain_seconds` at the end."""
        config = uvicorn.Config(
            app,
            lifespan="off",
            ws="none",
            proxy_headers=False,  # an address that a peer claims is no evidence
            http=BoundedHttpProtocol,
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=max(1, round(drain_seconds)),
        )
        super().__init__(config)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone: riglm listens to them itself."""
        yield

    async def drain(self, serving: asyncio.Task[None], seconds: float) -> None:
        """Wait for the end of `serving`, at most `seconds` seconds.

        Connections without a request are closed again and again: some come in while the server stops listening.
        """
        for _ in range(max(1, round(seconds / _LOOK_SECONDS))):
            await asyncio.wait({serving}, timeout=_LOOK_SECONDS)
            if serving.done():
                return
            for connection in list(self.server_state.connections):
                connection.shutdown()

    def cut(self) -> None:
        """Break every connection."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()


WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
"""Behind it, before the path of a protected resource, is the metadata of that resource (RFC 9728)."""


class Identity(NamedTuple):
    """A caller with a valid token: the principal, its groups, and the scopes that were granted."""

    principal: str
    groups: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()


class Rejection(NamedTuple):
    """An HTTP status, the words that go with it, and a header where the status calls for one."""

    status: int
    words: str
    header: tuple[bytes, bytes] | None = None


class RequestGuard:
    """Lets through requests that were meant for this listener and come from where they may."""

    def __init__(
        self,
        host: str,
        *,
        tokens: Mapping[str, str] | None = None,
        hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
        needs_token: bool = False,
    ) -> None:
        """Create the guard of a listener on `host`; `hosts` and `origins` are accepted in addition to loopback.

        `tokens` are those of the permitted principals, by name. Without any, every client is permitted, without a name,
        unless it `needs_token`.
        """
        self._allowed_origins = AllowedOrigins(host, hosts=hosts, origins=origins)
        self._tokens = {name: token.encode() for name, token in (tokens or {}).items()}
        self._needs_token = needs_token or bool(self._tokens)

    def admit(self, headers: Mapping[bytes, bytes], *, anonymous: bool = False) -> str | Rejection:
        """The principal of a request with these headers, empty where there is none; or why it is refused.

        `anonymous` spares it the token: a browser asks without one whether it may send a request that has it.
        """
        if not self._allowed_origins.knows_host(headers.get(b"host", b"").decode("latin-1")):
            return Rejection(421, "Invalid Host header: add the name to downstream.allowed_hosts if it is yours")
        origin = headers[b"origin"].decode("latin-1") if b"origin" in headers else None
        if origin is not None and not (self._allowed_origins.knows_origin(origin) or is_loopback_origin(origin)):
            return Rejection(403, "Invalid Origin header: add it to downstream.allowed_origins if it is yours")
        if anonymous or not self._needs_token:
            return ""
        principal = self._known(headers.get(b"authorization", b""))
        if principal is None:
            return Rejection(401, "A bearer token is required", (b"www-authenticate", b'Bearer realm="riglm"'))
        return principal

    def _known(self, authorization: bytes) -> str | None:
        """Return the principal of a token; all are compared, so that the time reveals nothing."""
        given = bearer_token(authorization) or b""
        found = [name for name, token in self._tokens.items() if hmac.compare_digest(given, token)]
        return found[0] if found else None
