"""Clients over Streamable HTTP, and over the older HTTP+SSE."""

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from riglm.adapters.mcp.downstream.answer import Header, Send, send_error, send_json, send_status
from riglm.adapters.mcp.downstream.http_handshake import HandshakeEndpoint
from riglm.adapters.mcp.downstream.http_modern import ModernEndpoint
from riglm.adapters.mcp.downstream.http_request import BodyError, ClientDisconnectedError, McpHttpRequest, Receive
from riglm.adapters.mcp.downstream.http_server import WELL_KNOWN, Identity, Rejection, RequestGuard, UvicornServer
from riglm.adapters.mcp.downstream.http_sessions import HttpSessions
from riglm.adapters.mcp.downstream.sse import SSE_PATH, SseClients
from riglm.adapters.mcp.wire.messages import decode_any
from riglm.domain import jsonrpc, protocol, request_params
from riglm.domain.access import AccessRules, CrossOrigin
from riglm.domain.errors import ConfigurationError
from riglm.domain.jsonrpc import MalformedMessageError
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.schemas.settings import Settings
from riglm.ports.downstream import DownstreamPort, StoredHandshakes

_log = logging.getLogger("riglm.downstream")
_SWEEP_SECONDS: Final = 5.0
_DRAIN_SECONDS: Final = 4.0
_CUT_SECONDS: Final = 0.5

_HANDSHAKE: Final = frozenset(version.encode() for version in protocol.HANDSHAKE_VERSIONS)
_FIRST_HANDSHAKE: Final = protocol.HANDSHAKE_VERSIONS[0].encode()
_PROFILE: Final = b"riglm-profile"
_SENT_HEADERS: Final = (
    b"accept, authorization, content-type, last-event-id, mcp-protocol-version, mcp-session-id, " + _PROFILE
)
_CLOSE: Final = ((b"connection", b"close"),)


class HttpDownstream:
    """An ASGI application for MCP clients."""

    def __init__(
        self,
        proxy: DownstreamPort,
        settings: Settings,
        handshakes: StoredHandshakes | None = None,
        filtering: Callable[[], FilteringSettings] | None = None,
        access: AccessRules | None = None,
    ) -> None:
        """Serves what `settings.downstream` asks for; with stored `handshakes` as one of several processes.

        `filtering` returns the current settings, if they can change. With `access`, each caller needs a rule.
        """
        downstream = settings.downstream
        self._filtering = filtering or (lambda: settings.filtering)
        self._settings = downstream
        self._limit = settings.limits.request_bytes
        self._gate = RequestGuard(
            downstream.host,
            tokens=downstream.principals,
            hosts=downstream.allowed_hosts,
            origins=downstream.allowed_origins,
            needs_token=downstream.auth is not None,
        )
        self._access = access
        self._resource = None
        if downstream.auth is not None:
            from riglm.adapters.mcp.downstream.access_tokens import ProtectedResource  # noqa: PLC0415  # rarely needed

            self._resource = ProtectedResource(downstream.auth)
        self._cross_origin = CrossOrigin(
            downstream.allowed_origins,
            methods=b"GET, POST, DELETE",
            sent=_SENT_HEADERS,
            exposed=b"mcp-session-id, www-authenticate",
            with_loopback=True,  # the guard lets their pages send requests
        )
        self._handle_header = settings.sessions.header.lower().encode()
        buffer = settings.limits.sse_buffer
        idle, most = downstream.session_idle, downstream.max_sessions
        process = downstream.process or secrets.token_hex(4)
        self._sessions = HttpSessions(proxy, process, idle_seconds=idle, most=most, handshakes=handshakes)
        self._handshake = HandshakeEndpoint(self._sessions, buffer)
        self._modern = ModernEndpoint(proxy, buffer)
        self._sse = SseClients(proxy, process, buffer, self._limit)
        by_transport = {"http": [downstream.path], "sse": [SSE_PATH], "both": [downstream.path, SSE_PATH]}
        self._entrances = by_transport[downstream.transport]
        """The paths at which clients begin."""
        self._not_found = f"Not found: MCP is at {' and '.join(self._entrances)}"

    async def serve(self, listener: socket.socket, stop: asyncio.Event) -> None:
        """Serve on a bound socket until `stop` is set; then finish what is under way, within a few seconds."""
        server = UvicornServer(self, drain_seconds=_DRAIN_SECONDS + 2 * _CUT_SECONDS)
        host, port, *_ = listener.getsockname()
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        urls = [f"http://{address}{path}" for path in self._entrances]
        _log.info("listening", extra={"urls": urls, "host": host, "port": port, "paths": self._entrances})
        loop = asyncio.get_running_loop()
        if self._resource is not None:
            self._resource.start()
        housekeeping = [loop.create_task(self._every(self._ping)), loop.create_task(self._every(self._sessions.reap))]
        serving = loop.create_task(server.serve(sockets=[listener]))
        stopped = loop.create_task(stop.wait())
        try:
            await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
            server.should_exit = True
            for part in (self._handshake, self._modern, self._sse):
                part.end_streams()
            await server.drain(serving, _DRAIN_SECONDS)
            for part in (self._handshake, self._modern, self._sse):
                part.give_up()
            await asyncio.wait({serving}, timeout=_CUT_SECONDS)
            server.cut()
            await serving
        finally:
            for task in (*housekeeping, stopped):
                task.cancel()
            await self._sessions.close()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        request = McpHttpRequest(scope, receive, self._handle_header)
        outgoing = _Outgoing(send, self._cross_origin.grant(request.headers))
        try:
            await self._answer(request, outgoing.send)
        except BodyError as error:
            await _refuse_body(request, outgoing.send, error)
        except ClientDisconnectedError:
            return
        except Exception:  # noqa: BLE001  # the client must get a response, regardless of the failure
            _log.exception("a request failed inside riglm", extra={"path": scope["path"]})
            if outgoing.started:
                request.cut()
            else:
                words = "Internal error in riglm: its log says more"
                body = jsonrpc.error(request.asked, jsonrpc.INTERNAL_ERROR, words).line
                await send_json(outgoing.send, 500, body, _CLOSE)

    async def _answer(self, request: McpHttpRequest, send: Send) -> None:
        preflight = self._cross_origin.preflight(request.method, request.headers)
        path = request.scope["path"].rstrip("/")
        is_metadata = self._resource is not None and path.startswith(WELL_KNOWN)
        if is_metadata:
            path = path.removeprefix(WELL_KNOWN) or self._entrances[0]
        is_sse = self._settings.transport != "http" and path in self._sse.paths
        named = b"" if is_sse else self._profile_in(path)
        entrance = SSE_PATH if is_sse else self._entrances[0] if named is None else path
        resource = quote(entrance) if self._resource is not None else ""
        admitted = await self._admit(request, resource, named, anonymous=bool(preflight) or is_metadata)
        if isinstance(admitted, Rejection):
            await _reject(send, admitted)
        elif preflight:
            await send_status(send, 204, preflight)
        elif named is None:
            await send_error(send, 404, jsonrpc.INVALID_REQUEST, self._not_found)
        elif is_metadata and self._resource is not None:
            await send_json(send, 200, self._resource.metadata(request.headers, resource))
        else:
            found = self._rights(admitted, named or request.headers.get(_PROFILE))
            if isinstance(found, Rejection):
                await _reject(send, found)
                return
            profile, access = found
            request.caller = replace(request.caller, principal=admitted.principal, profile=profile, access=access)
            if is_sse:
                await self._sse.answer(path, request, send)
            elif request.method == "POST":
                await self._post(request, send)
            else:
                await (self._modern if _is_modern(request) else self._handshake).other(request, send)

    async def _admit(
        self, request: McpHttpRequest, resource: str, named: bytes | None, *, anonymous: bool
    ) -> Identity | Rejection:
        """Return the caller of a request, by its fixed token or by its access token; or why it is refused."""
        admitted = self._gate.admit(request.headers, anonymous=anonymous)
        if isinstance(admitted, str):
            return Identity(admitted, frozenset((admitted,)))
        if admitted.status != 401 or self._resource is None:
            return admitted
        profile = (named or b"").decode("utf-8", "replace")
        return await self._resource.admit(request.headers, resource, profile)

    def _profile_in(self, path: str) -> bytes | None:
        """Return the profile that a path of Streamable HTTP names, empty for none; None for a different path."""
        mcp = self._settings.path.rstrip("/")
        if self._settings.transport == "sse" or not f"{path}/".startswith(f"{mcp}/"):
            return None
        return path[len(mcp) + 1 :].encode()

    def _rights(self, caller: Identity, named: bytes | None) -> tuple[str, str] | Rejection:
        """Return a caller's profile and access rules; both may be empty.

        The profile is that of its token, else the one that its request names.
        """
        filtering, rules = self._filtering(), self._access
        profile = of_token = filtering.profile_of_token.get(caller.principal, "")
        if named is not None:
            profile = named.decode("utf-8", "replace").strip(" \t")
            if of_token and profile != of_token:
                return Rejection(403, f"Forbidden: this token is for the profile {of_token!r}")
        access = "" if rules is None else rules.find(caller.groups, profile or filtering.profile)
        if (named is None or profile in filtering.profiles) and (access or rules is None):
            return profile, access
        known = [each for each in filtering.profiles if rules is None or rules.find(caller.groups, each)]
        if named is None and not known:
            return Rejection(403, "Forbidden: no access rule is for the groups of this caller")
        names = f"; its profiles are: {', '.join(known)}" if known else ""
        return Rejection(404, f"{self._not_found}{names}")

    async def _post(self, request: McpHttpRequest, send: Send) -> None:
        if not request.sends_json:
            await send_error(send, 415, jsonrpc.INVALID_REQUEST, "Content-Type must be application/json")
            return
        if not (request.accepts(b"application/json") and request.accepts(b"text/event-stream")):
            words = "Not acceptable: the client must accept both application/json and text/event-stream"
            await send_error(send, 406, jsonrpc.INVALID_REQUEST, words)
            return
        message = await decode_any(await request.body(self._limit))
        if isinstance(message, MalformedMessageError):
            await send_json(send, 400, jsonrpc.error(message.id, message.code, str(message)).line)
            return
        request.asked = message.id
        if _is_modern(request) or (message.is_request and request_params.envelope(message) is not None):
            await self._modern.answer(message, request, send)
        else:
            await self._handshake.answer(message, request, send)

    async def _every(self, step: Callable[[], Awaitable[None]]) -> None:
        """Do something now and then for as long as riglm serves."""
        while True:
            await asyncio.sleep(min(_SWEEP_SECONDS, self._settings.session_idle / 2))
            try:
                await step()
            except Exception:  # noqa: BLE001  # one that fails must not be the last
                _log.exception("sweeping failed")

    async def _ping(self) -> None:
        now = time.monotonic()
        for answer in [*self._handshake.answers, *self._modern.answers]:
            answer.ping(now)
        self._sse.ping(now)


def _is_modern(request: McpHttpRequest) -> bool:
    """Return True if the header with the protocol version names one of the modern era, or an unknown one."""
    return request.headers.get(b"mcp-protocol-version", _FIRST_HANDSHAKE) not in _HANDSHAKE


async def _reject(send: Send, rejection: Rejection) -> None:
    extra = [rejection.header] if rejection.header else []
    await send_error(send, rejection.status, jsonrpc.INVALID_REQUEST, rejection.words, extra)


class _Outgoing:
    """Notes whether an answer was begun, and lets the pages that may read it do so."""

    __slots__ = ("_extra", "_send", "started")

    def __init__(self, send: Send, extra: Iterable[Header]) -> None:
        self._send = send
        self._extra = extra
        self.started = False

    async def send(self, event: dict[str, Any]) -> None:
        if not self.started:
            self.started = True
            if self._extra:
                event["headers"] = [*event["headers"], *self._extra]
        await self._send(event)


async def _refuse_body(request: McpHttpRequest, send: Send, error: BodyError) -> None:
    """Answer while the body still comes, and close only after the client had time to read that."""
    body = jsonrpc.error(None, jsonrpc.INVALID_REQUEST, f"Invalid request: {error}").line
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *_CLOSE]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    await request.discard()
    await send({"type": "http.response.body", "body": b""})


def bound_socket(host: str, port: int, *, section: str = "downstream", option: str = "--port") -> socket.socket:
    """A listening socket; `section` of the configuration asked for it, and `option` chooses another port.

    Raises:
        ConfigurationError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # what is accepted here inherits it
    try:
        listener.bind((host.strip("[]"), port))
        listener.listen()  # or else another riglm that starts now could bind the same address
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        fix = f"end what listens there, or choose another with {option}" if port else f"choose another {section}.host"
        raise ConfigurationError(f"{section}.port: cannot listen on {host}:{port}: {reason} — fix: {fix}") from error
    return listener
