"""One client behind a load balancer that routes MCP sessions by their id, and all other requests in turn."""

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass, field
from typing import Any

_VERSION = {"handshake": "2025-11-25", "modern": "2026-07-28"}
_ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": _VERSION["modern"],
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1"},
}
_SECONDS = 60.0


@dataclass
class Ports:
    """The ports of the processes that are up for the load balancer, by the name with which session ids begin."""

    all: dict[str, int]

    def route(self, session_id: str, turn: int) -> int:
        """Return the port for a request: that of the session's process if it is up, else each in turn."""
        ports = list(self.all.values())
        return self.all.get(session_id.partition(".")[0], ports[turn % len(ports)])

    def remove(self, port: int) -> None:
        """Send nothing there any more."""
        if len(self.all) > 1:
            self.all = {name: each for name, each in self.all.items() if each != port}


@dataclass
class Tally:
    """What happened to one session. Times are by the monotonic clock, in seconds."""

    answered: list[tuple[str, float, int]] = field(default_factory=list)
    """What each answered call asked, when its answer came, and from which process."""
    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    cut: int = 0
    moved: int = 0
    """How often another process continued a handshake session."""
    reopened: int = 0


class Session:
    """Speaks one era; a request whose connection breaks is sent to the next process."""

    def __init__(self, name: str, era: str, ports: Ports, first: int) -> None:
        self.name = name
        self.era = era
        self.tally = Tally()
        self._ports = ports
        self._turn = first
        self._last_id = 0
        self._session_id = ""
        self._counted = 0
        self._counted_at = 0

    async def open(self) -> None:
        """Be let in."""
        if self.era == "handshake":
            params = {
                "protocolVersion": _VERSION["handshake"],
                "capabilities": {},
                "clientInfo": {"name": "benchmark", "version": "1"},
            }
            await self._ask("initialize", params)
            await self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        else:
            await self._ask("server/discover", {})

    async def call(self, number: int) -> None:
        """Call a tool that repeats a text. In the handshake era, check the state of the server as well."""
        nonce = f"{self.name}-{number}"
        began = time.monotonic()
        result, port = await self._ask("tools/call", {"name": "nonce", "arguments": {"nonce": nonce}})
        self.tally.seconds.append(time.monotonic() - began)
        self.tally.answered.append((nonce, time.monotonic(), port))
        if not result or result.get("content", [{}])[0].get("text") != nonce:
            self.tally.wrong.append(f"{nonce}: {result}")
        if self.era == "handshake":
            await self._count()

    async def _count(self) -> None:
        """Check that the server counts on; the session of another process begins at one."""
        result, port = await self._ask("tools/call", {"name": "counter", "arguments": {}})
        if self._counted_at not in {0, port}:
            self.tally.moved += 1
            self._counted = 0
        self._counted_at = port
        count = (result or {}).get("structuredContent", {}).get("count", 0)
        if count != self._counted + 1:
            self.tally.wrong.append(f"{self.name}: counted {count} after {self._counted}")
        self._counted = count

    async def _ask(self, method: str, params: dict[str, Any]) -> tuple[dict[str, Any] | None, int]:
        """The result of a request, None when it is an error, and who gave it."""
        while True:
            self._last_id += 1
            if self.era == "modern":
                params = {**params, "_meta": _ENVELOPE}
            message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
            status, answer, port = await self._send(message)
            if status == 404 and self.era == "handshake" and method != "initialize":
                self.tally.reopened += 1
                self._session_id = ""
                self._counted = self._counted_at = 0
                await self.open()
                continue
            if "result" not in answer:
                self.tally.wrong.append(f"{self.name} {method}: HTTP {status} {answer}")
            return answer.get("result"), port

    async def _send(self, message: dict[str, Any]) -> tuple[int, dict[str, Any], int]:
        while True:
            self._turn += 1
            port = self._ports.route(self._session_id, self._turn)
            try:
                async with asyncio.timeout(_SECONDS):
                    return *await self._exchange(port, message), port
            except (ConnectionError, asyncio.IncompleteReadError):
                self.tally.cut += 1
                self._ports.remove(port)

    async def _exchange(self, port: int, message: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        try:
            body = json.dumps(message).encode()
            writer.write(self._head(port, message, len(body)) + body)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            status = int(head.split(" ", 2)[1])
            headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
            if message["method"] == "initialize" and status == 200:
                names = [line for line in head.split("\r\n") if line.lower().startswith("mcp-session-id: ")]
                self._session_id = names[0].partition(": ")[2]
            return status, _answer(await _body(reader, headers))
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def _head(self, port: int, message: dict[str, Any], length: int) -> bytes:
        lines = [
            "POST /mcp HTTP/1.1",
            f"Host: 127.0.0.1:{port}",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            f"Content-Length: {length}",
        ]
        if self._session_id:
            lines.append(f"Mcp-Session-Id: {self._session_id}")
        if message["method"] != "initialize":
            lines.append(f"MCP-Protocol-Version: {_VERSION[self.era]}")
        if self.era == "modern":
            lines += [f"X-Riglm-Session: {self.name}", f"Mcp-Method: {message['method']}"]
            name = message["params"].get("name")
            lines += [f"Mcp-Name: {name}"] if name else []
        return "\r\n".join([*lines, "", ""]).encode()


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    parts = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    return b"".join(parts)


def _answer(body: bytes) -> dict[str, Any]:
    """The message in a body, which may be a stream of events."""
    for line in body.splitlines():
        data = line[5:].strip() if line.startswith(b"data:") else line.strip()
        if data.startswith(b"{"):
            message: dict[str, Any] = json.loads(data)
            if "result" in message or "error" in message:
                return message
    return {}
