"""The older HTTP+SSE transport."""

import json

import pytest

from tests.unit.adapters.downstream.conftest import Front, Started
from tests.unit.adapters.downstream.peer import Peer, Response, request, within

STREAM = {"accept": "text/event-stream"}


@pytest.fixture
async def front(start: Started) -> Front:
    return await start(transport="both")


class Older:
    """A client with its stream."""

    def __init__(self, stream: Response, down: Peer, up: Peer, path: str) -> None:
        self.stream = stream
        self.down = down
        self.up = up
        self.path = path

    async def post(self, body: bytes, **headers: str | None) -> int:
        answer = await self.up.send("POST", body, path=self.path, headers=headers)
        return (await answer.whole()).status

    async def heard(self) -> dict[str, object]:
        return json.loads((await self.stream.event()).data)  # type: ignore[no-any-return]


async def older(front: Front) -> Older:
    down, up = await front.peer(), await front.peer()
    stream = await down.send("GET", path="/sse", headers=STREAM)
    assert stream.headers["content-type"] == "text/event-stream"
    event = await stream.event()
    assert event.name == "endpoint"
    return Older(stream, down, up, event.data.decode())


async def test_what_cannot_be_told_on_this_transport_is_not(front: Front):
    client = await older(front)
    await client.post(request("hold"))
    asked = await front.script.held()
    asked.pause(100)
    asked.answer()
    event = await client.stream.event()
    assert (event.id, b"result" in event.data) == (None, True)


@pytest.mark.parametrize("query", ["", "?session_id=", "?session_id=unknown", "?x=1", "?session_id=a&session_id=b"])
async def test_a_message_for_an_unknown_stream_is_not_taken(front: Front, query: str):
    peer = await front.peer()
    assert (await (await peer.send("POST", request("echo"), path=f"/messages{query}")).whole()).status == 404


async def test_a_message_that_is_not_said_to_be_json_is_refused(front: Front):
    client = await older(front)
    assert await client.post(request("echo"), **{"content-type": "text/plain"}) == 415


async def test_answers_that_are_owed_are_brought_before_riglm_stops(front: Front):
    busy, quiet = await older(front), await older(front)
    await busy.post(request("hold"))
    asked = await front.script.held()
    front.stop.set()
    assert (await quiet.stream.whole()).body == b""
    asked.say()
    asked.answer(b'"in time"')
    rest = (await busy.stream.whole()).events
    assert b"in time" in rest[-1].data
    await within(front.serving, 3)


async def test_requests_without_a_response_get_an_error_when_riglm_stops(front: Front, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("riglm.adapters.mcp.downstream.http._DRAIN_SECONDS", 0.1)
    client = await older(front)
    await client.post(request("hold"))
    await front.script.held()
    front.stop.set()
    await within(front.serving, 3)
    assert b"riglm is stopping" in (await client.stream.whole()).events[-1].data
