import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from riglm.adapters.mcp.upstream.deadlines import UpstreamTimeouts
from riglm.adapters.mcp.upstream.http_link import HttpEndpoint
from riglm.adapters.mcp.upstream.sse_upstream import SseUpstream
from riglm.adapters.mcp.wire.http_client import HttpClient, Target
from riglm.domain.upstream import UpstreamSpec
from tests.unit.adapters.upstream.actors import QUICK, Ears, ask, notification, within
from tests.unit.adapters.wire.peers import Caller, serving
from tests.waiting import wait_until_async

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n"
ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 8\r\n\r\nAccepted"
LIMIT = 65_536


def refusal(status: int, headers: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d No\r\nContent-Type: text/plain\r\n%bContent-Length: 2\r\n\r\nno" % (status, headers)


class OldServer:
    """Speaks HTTP+SSE; answers every request unless it is told not to."""

    def __init__(self) -> None:
        self.streams: list[Caller] = []
        self.heads: list[dict[str, str]] = []
        self.messages: list[dict[str, object]] = []
        self.paths: list[str] = []
        self.endpoint = "/messages?session=1"
        self.opening = STREAM
        self.statuses: dict[str, bytes] = {}
        self.answers = True
        self.gates: dict[str, asyncio.Event] = {}
        self.cut = ""

    async def __call__(self, caller: Caller) -> None:
        while (asked := await caller.request()) is not None:
            method, path, _ = asked.line.split(" ")
            self.heads.append(asked.headers)
            if method == "GET":
                self.streams.append(caller)
                await caller.say(self.opening)
                if self.opening == STREAM and self.endpoint:
                    await self.event(self.endpoint, name="endpoint")
                await caller.hang_up()
                return
            await self.take(caller, path, json.loads(asked.body))

    async def take(self, caller: Caller, path: str, message: dict[str, object]) -> None:
        name = str(message.get("method"))
        self.paths.append(path)
        self.messages.append(message)
        if name == self.cut:
            self.cut = ""
            caller.reset()
            raise ConnectionError
        if name in self.gates:
            await self.gates[name].wait()
        await caller.say(self.statuses.get(name, ACCEPTED))
        if self.answers and "id" in message and "method" in message and name not in self.statuses:
            await self.answer(message)

    async def event(self, data: str, name: str = "message") -> None:
        await self.streams[-1].say(f"event: {name}\r\ndata: {data}\r\n\r\n".encode())

    async def answer(self, message: dict[str, object]) -> None:
        await self.event(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"was": message["method"]}}))

    @property
    def methods(self) -> list[object]:
        return [message.get("method") for message in self.messages]


@asynccontextmanager
async def visibility(server: OldServer, *, timeout_seconds: UpstreamTimeouts = QUICK, **spec: object):
    """An upstream in front of the server, which must leave nothing behind."""
    async with serving(server) as served:
        url = f"http://127.0.0.1:{served.port}/sse"
        client = HttpClient(environment={})
        given = UpstreamSpec(**{"name": "server", "kind": "sse", "url": url, **spec})  # type: ignore[arg-type]
        upstream = SseUpstream(
            HttpEndpoint(spec=given, client=client, target=Target(url), timeout_seconds=timeout_seconds, limit=LIMIT)
        )
        upstream.served = served  # type: ignore[attr-defined]
        try:
            yield upstream
        finally:
            await within(upstream.close())
            await within(client.close())


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("http://127.0.0.1:1/messages", "at another origin, http://127.0.0.1:1, which is refused"),
        ("https://127.0.0.1/messages", "at another origin"),
        ("//evil.example/messages", "at another origin"),
        ("file:///etc/passwd", "that is no URL"),
        ("http://[", "that is no URL"),
    ],
)
async def test_an_endpoint_elsewhere_is_refused(endpoint, words):
    server = OldServer()
    server.endpoint = endpoint
    async with visibility(server) as upstream:
        assert words in await ask(upstream.connect(Ears()), 1, "ping").words()
        assert server.messages == []


@pytest.mark.parametrize(
    ("opening", "words"),
    [
        (refusal(401), "refused the credentials (HTTP 401): run `riglm login server`, or see `auth` and `headers`"),
        (refusal(403), "of the upstream; it says: no"),
        (refusal(403, b'WWW-Authenticate: Bearer error="insufficient_scope", scope="a"\r\n'), "requires the scope a"),
        (refusal(405), "it may support Streamable HTTP"),
        (refusal(503), "answered HTTP 503 instead"),
        (refusal(200), "answered HTTP 200 instead of an event stream"),
        (b"nonsense\r\n\r\n", "did not open its event stream"),
    ],
)
async def test_what_is_no_event_stream_is_an_error_that_says_so(opening, words):
    server = OldServer()
    server.opening = opening
    async with visibility(server) as upstream:
        found = await ask(upstream.connect(Ears()), 1, "ping").words()
        assert found.startswith("upstream 'server' ")
        assert words in found


@pytest.mark.parametrize(
    ("opening", "words"),
    [(None, "named no endpoint for messages within 0.5 s"), (refusal(401)[:-1], "of the upstream; it says: n")],
)
async def test_a_server_that_names_no_endpoint_is_given_up(opening, words):
    server = OldServer()
    server.endpoint = ""
    server.opening = opening or server.opening
    async with visibility(server, timeout_seconds=UpstreamTimeouts(initialize=0.5)) as upstream:
        assert words in await ask(upstream.connect(Ears()), 1, "ping").words()


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (303, "refused the message with HTTP 303 and redirects to http://127.0.0.1"),
        (400, "refused the message with HTTP 400"),
        (401, "refused the credentials (HTTP 401): run `riglm login server`, or see `auth` and `headers`"),
        (403, "of the upstream; it requires the scope a; it says: no"),
        (413, "refused the message with HTTP 413"),
        (500, "refused the message with HTTP 500"),
    ],
)
async def test_a_message_that_is_refused_fails_alone(status, words):
    server = OldServer()
    challenge = b'WWW-Authenticate: Bearer error="insufficient_scope", scope="a"\r\n'
    headers = {403: challenge, 303: b"Location: /other\r\n"}
    server.statuses["tools/call"] = refusal(status, headers.get(status, b""))
    server.gates["tools/list"] = asyncio.Event()
    async with visibility(server) as upstream:
        link = upstream.connect(Ears())
        await ask(link, 1, "initialize").result()
        other = ask(link, 2, "tools/list")
        error = await ask(link, 3, "tools/call").error()
        assert error["message"].startswith("upstream 'server' refused the ")
        assert words in error["message"]
        server.gates["tools/list"].set()
        await other.result()
        assert len(server.streams) == 1


async def test_a_cut_connection_is_tried_again_but_for_what_may_have_effects():
    server = OldServer()
    async with visibility(server) as upstream:
        link = upstream.connect(Ears())
        await ask(link, 1, "initialize").result()
        server.cut = "tools/list"
        await ask(link, 2, "tools/list").result()
        server.cut = "tools/call"
        assert "could not be sent" in (await ask(link, 3, "tools/call").error())["message"]
        assert server.methods.count("tools/call") == 1
        link.send(notification("notifications/vendor"))
        await wait_until_async(lambda: "notifications/vendor" in server.methods)


async def test_a_message_over_the_limit_ends_the_stream_which_is_opened_again():
    server = OldServer()
    server.answers = False
    async with visibility(server) as upstream:
        link = upstream.connect(Ears())
        answer = ask(link, 1, "tools/call")
        await wait_until_async(lambda: server.methods == ["tools/call"])
        await server.event("x" * (LIMIT + 1))
        assert f"over the limit of {LIMIT} bytes" in await answer.words()
        server.answers = True
        await ask(link, 2, "tools/call").result()
