"""Opening connections: addresses, patience with a server that is just starting, proxies, TLS and its authorities."""

import asyncio
import logging
import os
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, cast

from riglm.adapters.mcp.wire.exchange import HttpClientError
from riglm.adapters.mcp.wire.target import Target

VARIABLES: Final = ("NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
"""Each names a file with certificates, or a directory of them, to trust in addition to those of the system."""

_log: Final = logging.getLogger("riglm.wire")


def create_ssl_context(
    context: ssl.SSLContext | None = None, environment: Mapping[str, str] = os.environ
) -> ssl.SSLContext:
    """Return a TLS context, by default that of the system, which also trusts the authorities in `VARIABLES`.

    A file that cannot be read is logged and left out.
    """
    context = context or ssl.create_default_context()
    paths = {environment.get(name, ""): name for name in VARIABLES}  # a file takes 50 ms, and all often name the same
    for path, name in paths.items():
        if not path:
            continue
        try:
            if Path(path).is_dir():
                context.load_verify_locations(capath=path)
            else:
                context.load_verify_locations(cafile=path)
        except OSError as error:  # ssl.SSLError is one
            _log.warning("certificates not loaded", extra={"variable": name, "path": path, "reason": str(error)})
    return context


def create_httpx_context() -> ssl.SSLContext:
    """Return the TLS context for clients of httpx2, which on macOS and Windows uses the store of the system."""
    import httpx2  # noqa: PLC0415  # a tenth of a second

    return create_ssl_context(httpx2.create_ssl_context())


BACK_OFF = (0.05, 0.1, 0.2, 0.4)
"""Seconds between attempts while the server refuses: most likely it is being restarted."""

_PRIVATE_AUTHORITY = f"; certificates of a private authority are taken from {', '.join(VARIABLES)}"

MAX_TUNNEL_HEAD = 16_384

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])[ \r]")


class Dialer:
    """Opens connections for a whole process, with one TLS context, made when it is first needed."""

    def __init__(self, *, connect_timeout: float, ssl_context: Callable[[], ssl.SSLContext]) -> None:
        self._connect_timeout = connect_timeout
        self._make_context = ssl_context
        self._context: ssl.SSLContext | None = None
        self._making_context = asyncio.Lock()

    async def connect(self, target: Target, proxy: Target | None, protocol: asyncio.Protocol) -> None:
        """Open a connection to the target's host, by way of the proxy if there is one, and give it to the protocol.

        Raises:
            HttpClientError: there is no connection; nothing was sent.
        """
        place = target.origin if proxy is None else f"{target.origin} through the proxy {proxy.origin}"
        try:
            async with asyncio.timeout(self._connect_timeout):
                context = await self._tls() if target.tls else None
                if proxy is not None and context is not None:
                    await self._tunnel(target, proxy, protocol, context)
                else:
                    await self._reach(proxy or target, lambda: protocol, context)
        except TimeoutError as error:
            message = f"{place} did not take the connection within {self._connect_timeout:g} s"
            raise HttpClientError(message, sent=False) from error
        except (OSError, ValueError) as error:
            hint = _PRIVATE_AUTHORITY if isinstance(error, ssl.SSLCertVerificationError) else ""
            raise HttpClientError(f"Cannot connect to {place}: {error}{hint}", sent=False) from error

    async def _tls(self) -> ssl.SSLContext:
        async with self._making_context:
            if self._context is None:
                self._context = await asyncio.to_thread(self._make_context)  # reading the CA store takes 20 ms
            return self._context

    async def _tunnel(self, target: Target, proxy: Target, protocol: asyncio.Protocol, context: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        opening = _Tunnel(loop.create_future())
        transport = await self._reach(proxy, lambda: opening, None)
        try:
            credentials = b"Proxy-%b" % proxy.authorization if proxy.authorization else b""
            authority = target.authority.encode()
            transport.write(b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (authority, authority, credentials))
            await opening.opened
            secured = await loop.start_tls(transport, protocol, context, server_hostname=target.host)
        except BaseException:
            transport.abort()
            raise
        protocol.connection_made(cast("asyncio.Transport", secured))

    async def _reach(
        self, place: Target, factory: Callable[[], asyncio.Protocol], context: ssl.SSLContext | None
    ) -> asyncio.Transport:
        """The first connection that one of the place's addresses takes; refusals are tried again for a while."""
        pauses = iter(BACK_OFF)
        addresses = await _addresses(place)
        while True:
            try:
                return await self._try(addresses, place, factory, context)
            except ConnectionRefusedError:
                if (pause := next(pauses, None)) is None:
                    raise
            await asyncio.sleep(pause)

    async def _try(
        self,
        addresses: list[str],
        place: Target,
        factory: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext | None,
    ) -> asyncio.Transport:
        loop = asyncio.get_running_loop()
        problems: list[OSError] = []
        for address in addresses:
            try:
                async with asyncio.timeout(self._connect_timeout / len(addresses)):
                    transport, _ = await loop.create_connection(
                        factory, address, place.port, ssl=context, server_hostname=place.host if context else None
                    )
                    return transport
            except ssl.SSLError:
                raise
            except OSError as error:
                problems.append(error)
        raise next((each for each in problems if isinstance(each, ConnectionRefusedError)), problems[0])


async def _addresses(place: Target) -> list[str]:
    if place.numeric:
        return [place.host]
    found = await asyncio.get_running_loop().getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class _Tunnel(asyncio.Protocol):
    """Waits for a proxy's answer to CONNECT."""

    def __init__(self, opened: asyncio.Future[None]) -> None:
        self.opened = opened
        self._head = b""

    def data_received(self, data: bytes) -> None:
        self._head += data
        if b"\r\n\r\n" not in self._head and len(self._head) <= MAX_TUNNEL_HEAD:
            return
        status = _STATUS.match(self._head)
        if status is None:
            self._settle(ConnectionError("the proxy does not use HTTP"))
        elif status[1].startswith(b"2"):
            self._settle(None)
        else:
            self._settle(ConnectionError(f"the proxy answered {status[1].decode()}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._settle(ConnectionError("the proxy closed the connection"))

    def _settle(self, problem: ConnectionError | None) -> None:
        if self.opened.done():
            return
        if problem is None:
            self.opened.set_result(None)
        else:
            self.opened.set_exception(problem)
