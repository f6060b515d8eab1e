"""Just enough of an HTTP/1.1 server to be able to break every rule of it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Request:
    """One request; header names are in lower case, repeated headers joined by a comma."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


class Connection(asyncio.Protocol):
    """One client connection; requests are answered one after the other."""

    def __init__(self, answer: Callable[["Connection", Request], Awaitable[None]]) -> None:
        self._answer = answer
        self._buffer = bytearray()
        self._requests: asyncio.Queue[Request] = asyncio.Queue()
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport
        self._task = asyncio.get_running_loop().create_task(self._run())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while request := self._take():
            self._requests.put_nowait(request)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set()
        self._task.cancel()

    def respond(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Send a whole response; header names are given with underscores."""
        self._head(status, {**headers, "content_length": str(len(body))})
        self.transport.write(body)

    def start(self, status: int, **headers: str) -> None:
        """Begin a response of unknown length."""
        self._head(status, {**headers, "transfer_encoding": "chunked"})

    def chunk(self, data: bytes) -> None:
        """Send a part of the response's body."""
        if not self.lost.is_set():
            self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def finish(self) -> None:
        """End a response that was begun with `start`."""
        if not self.lost.is_set():
            self.transport.write(b"0\r\n\r\n")

    def _head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
        lines += [f"{name.replace('_', '-')}: {content}" for name, content in headers.items()]
        self.transport.write("\r\n".join((*lines, "", "")).encode("latin-1"))

    def _take(self) -> Request | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, content = line.partition(":")
            name, content = name.strip().lower(), content.strip()
            headers[name] = f"{headers[name]}, {content}" if name in headers else content
        start, length = end + 4, int(headers.get("content-length", "0"))
        if len(self._buffer) < start + length:
            return None
        body = bytes(self._buffer[start : start + length])
        del self._buffer[: start + length]
        method, target, _ = first.split(" ", 2)
        address = urlsplit(target)
        return Request(method, address.path, address.query, headers, body)

    async def _run(self) -> None:
        while True:
            await self._answer(self, await self._requests.get())
