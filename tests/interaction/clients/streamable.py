"""A raw client's way over Streamable HTTP, in both eras."""

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

from tests.interaction import text
from tests.interaction.clients import http
from tests.interaction.clients.link import Receiver

_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_VERSION = "io.modelcontextprotocol/protocolVersion"


class HttpRefused(ConnectionError):
    """The server answered with an HTTP status and no message."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP {status}: {body[:200]!r}")
        self.status = status
        self.body = body


class Post:
    """One POST and the stream of its response."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.response: http.Response | None = None
        self.whole = False


class StreamableLink:
    """Sends each message as a POST; opens the GET stream once a session was begun."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None, *, listen: bool = True) -> None:
        self.url = url
        self.session_id: str | None = None
        self._headers = dict(headers or {})
        self._version: str | None = None
        self._listen = listen
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, receiver: Receiver) -> None:
        """There is nothing to connect yet."""
        self._receiver = receiver

    async def send(self, raw: bytes) -> object:
        """POST one message; its answer comes while others are sent."""
        post = Post()
        parts = self._parts(raw)
        if "method" in parts and "id" in parts:
            post.task = self._spawn(self._read(post, raw, parts))
        else:
            response = await http.send("POST", self.url, self._headers_for(parts), raw)
            body = await response.body()
            await response.close()
            if response.status != 202:
                self._take_body(post, response.status, body)
            if parts.get("method") == b'"notifications/initialized"' and self._listen:
                self._spawn(self._listen_on())
        return post

    async def abandon(self, stream: object) -> bool:
        """Close the response stream of one request."""
        assert isinstance(stream, Post)
        assert stream.task
        stream.task.cancel()
        await asyncio.wait([stream.task])
        return True

    async def close(self) -> None:
        """End the session, then every stream."""
        if self.session_id is not None:
            response = await http.send("DELETE", self.url, self._headers_for({}))
            await response.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def drop(self) -> None:
        """Forget the session without telling anyone, as a client that crashed would."""
        self.session_id = None

    def _headers_for(self, parts: Mapping[str, bytes]) -> dict[str, str]:
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        params = text.members(parts["params"]) if parts.get("params", b"")[:1] == b"{" else {}
        meta: dict[str, Any] = text.value(params.get("_meta", b"{}"))
        if _VERSION in meta:
            method = text.value(parts["method"])
            headers |= {"mcp-protocol-version": meta[_VERSION], "mcp-method": method}
            name = text.value(params.get(_NAMED.get(method, ""), b"null"))
            if name and isinstance(name, str):
                headers["mcp-name"] = _encoded(name)
        elif self._version and parts.get("method") != b'"initialize"':
            headers["mcp-protocol-version"] = self._version
        if self.session_id is not None:
            headers["mcp-session-id"] = self.session_id
        return headers | self._headers

    async def _read(self, post: Post, raw: bytes, parts: Mapping[str, bytes]) -> None:
        try:
            post.response = response = await http.send("POST", self.url, self._headers_for(parts), raw, within=60)
            try:
                if session_id := response.headers.get("mcp-session-id"):
                    self.session_id = session_id
                if response.headers.get("content-type", "").startswith("text/event-stream"):
                    async for _, data in http.events(response):
                        self._take(post, data, parts)
                else:
                    self._take_body(post, response.status, await response.body(), parts)
            finally:
                await response.close()
        except (ConnectionError, TimeoutError, ValueError) as error:
            self._receiver.stream_ended(post, error)
        else:
            self._receiver.stream_ended(post, http.Broken("the stream ended without an answer"))

    def _take(self, post: Post, data: bytes, parts: Mapping[str, bytes]) -> None:
        if parts.get("method") == b'"initialize"':
            came = text.members(data)
            if "result" in came:
                self._version = text.value(text.members(came["result"])["protocolVersion"])
        self._receiver.received(data, post)

    def _take_body(self, post: Post, status: int, body: bytes, parts: Mapping[str, bytes] | None = None) -> None:
        if not body.lstrip().startswith(b"{"):
            raise HttpRefused(status, body)
        post.whole = True
        self._take(post, body, parts or {})

    async def _listen_on(self) -> None:
        try:
            response = await http.send("GET", self.url, {**self._headers_for({}), "accept": "text/event-stream"})
            try:
                if response.status == 200:
                    async for _, data in http.events(response):
                        self._receiver.received(data, response)
            finally:
                await response.close()
        except (ConnectionError, TimeoutError) as error:
            self._receiver.stream_ended(self, error)

    def _spawn(self, work: Any) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @staticmethod
    def _parts(raw: bytes) -> dict[str, bytes]:
        try:
            return text.members(raw)
        except text.Malformed:
            return {}


def _encoded(name: str) -> str:
    if name.isascii() and name.isprintable() and name == name.strip():
        return name
    return f"=?base64?{base64.b64encode(name.encode('utf-8', 'surrogatepass')).decode()}?="
