"""Just enough of an HTTP/1.1 client to see every byte and to leave at any time."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit


class Broken(ConnectionError):
    """The response ended before it was complete."""


@dataclass(eq=False)
class Response:
    """The head of a response, and its body as it comes; header names are in lower case."""

    status: int
    headers: dict[str, str]
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body in pieces; raises Broken when it is cut off."""
        try:
            if self.headers.get("transfer-encoding") == "chunked":
                while size := int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16):
                    yield await self._reader.readexactly(size)
                    await self._reader.readexactly(2)
            elif "content-length" in self.headers:
                if length := int(self.headers["content-length"]):
                    yield await self._reader.readexactly(length)
            elif self.status not in (202, 204):
                while data := await self._reader.read(1 << 16):
                    yield data
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Broken(f"the body broke off: {error}") from error

    async def body(self) -> bytes:
        """The whole body."""
        return b"".join([chunk async for chunk in self.chunks()])

    async def close(self) -> None:
        """Leave, whatever was still to come."""
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


async def send(
    method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes | None = None, within: float = 20.0
) -> Response:
    """Send one request on a connection of its own and wait for the head of its response."""
    address = urlsplit(url)
    target = address.path + (f"?{address.query}" if address.query else "")
    lines = {"host": address.netloc, **(headers or {})}
    if body is not None:
        lines["content-length"] = str(len(body))
    head = [f"{method} {target} HTTP/1.1", *(f"{name}: {content}" for name, content in lines.items())]
    reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=1 << 20)
    try:
        writer.write("\r\n".join((*head, "", "")).encode("latin-1") + (body or b""))
        async with asyncio.timeout(within):
            await writer.drain()
            raw = await reader.readuntil(b"\r\n\r\n")
    except BaseException as error:
        writer.close()
        if isinstance(error, asyncio.IncompleteReadError | ConnectionError):
            raise Broken(f"no response: {error}") from error
        raise
    status, *rest = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
    found = {name.strip().lower(): content.strip() for name, _, content in (line.partition(":") for line in rest)}
    return Response(int(status.split(" ")[1]), found, reader, writer)


async def events(response: Response) -> AsyncIterator[tuple[str, bytes]]:
    """The server-sent events of a response that have a name or data."""
    buffer, scanned, handoff = bytearray(), 0, b""
    async for data in response.chunks():
        chunk = handoff + data
        handoff = b"\r" if chunk.endswith(b"\r") else b""
        buffer += chunk[: len(chunk) - len(handoff)].replace(b"\r\n", b"\n")
        while (end := buffer.find(b"\n\n", max(0, scanned - 1))) >= 0:
            block, scanned = bytes(buffer[:end]), 0
            del buffer[: end + 2]
            name, lines = "message", []
            for line in block.split(b"\n"):
                field, _, content = line.partition(b":")
                content = content.removeprefix(b" ")
                if field == b"event":
                    name = content.decode()
                elif field == b"data":
                    lines.append(content)
            if lines and (joined := b"\n".join(lines)):
                yield name, joined
        scanned = len(buffer)
