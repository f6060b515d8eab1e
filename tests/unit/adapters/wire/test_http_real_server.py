"""The client against a server that is not ours."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from riglm.adapters.mcp.wire.http_client import Target
from riglm.adapters.mcp.wire.sse import Event, EventParser
from tests.unit.adapters.wire.peers import PATIENCE, Answer, client_for, post, within


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Echoes a body on POST, counts in events on GET until the client is gone."""
    if scope["type"] == "lifespan":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    kind = b"text/event-stream" if scope["method"] == "GET" else b"application/json"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
    if scope["method"] == "POST":
        await send({"type": "http.response.body", "body": body})
        return
    for number in range(int(scope["query_string"] or b"0")):
        await send(
            {"type": "http.response.body", "body": b"event: message\r\ndata: %d\r\n\r\n" % number, "more_body": True}
        )
    if scope["path"] == "/for-ever":
        assert (await receive())["type"] == "http.disconnect"
        gone.set()
    await send({"type": "http.response.body", "body": b""})


gone = threading.Event()


@pytest.fixture(scope="module", params=["h11", "httptools"])
def origin(request: pytest.FixtureRequest) -> Iterator[str]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(1024)
        config = uvicorn.Config(application, http=request.param, lifespan="off", log_level="error")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()


async def test_a_thousand_requests_get_their_own_bodies_back(origin: str) -> None:
    async with client_for() as client:
        target = Target(f"{origin}/mcp")

        async def one(number: int) -> None:
            for turn in range(20):
                nonce = b"%d-%d" % (number, turn) * (1 + number * 100)
                assert (await post(client, target, nonce)[0].complete()).body == nonce

        await asyncio.gather(*(one(number) for number in range(50)))


async def test_a_stream_of_events_is_heard_to_its_end(origin: str) -> None:
    async with client_for() as client:
        answer = Answer()
        client.send(Target(f"{origin}/?1000"), b"GET", b"Accept: text/event-stream\r\n", b"", answer)
        await answer.complete()
        events: list[Event] = []
        parser = EventParser(events.append, 1_000)
        for chunk in answer.chunks:
            parser.feed(chunk)
        assert [event.data for event in events] == [b"%d" % number for number in range(1_000)]


async def test_an_abort_is_noticed_by_the_server(origin: str) -> None:
    gone.clear()
    async with client_for() as client:
        answer = Answer()
        exchange = client.send(Target(f"{origin}/for-ever?1"), b"GET", b"", b"", answer)
        await within(answer.got_data.wait())
        exchange.abort()
        assert await within(asyncio.to_thread(gone.wait, PATIENCE))
        assert answer.heard == ["head", "data"]
