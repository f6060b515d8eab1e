"""Streams that last: quiet ones, ones that nobody reads, and how all of them end when riglm stops."""

import asyncio
import json
import logging
from typing import Any

import pytest

from riglm.adapters.mcp.downstream import answer, http
from riglm.adapters.mcp.downstream.answer import Events, JsonOrSseResponse
from riglm.domain import jsonrpc
from tests.unit.adapters.downstream.conftest import Front, Started
from tests.unit.adapters.downstream.peer import META, Response, request, within

MODERN = {"mcp-protocol-version": "2026-07-28"}
CHUNK = jsonrpc.notification("notifications/x", b'"%b"' % (b"x" * 100_000))


class Wire:
    """Takes what is sent; holds the sender up when told to."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.free = asyncio.Event()
        self.free.set()

    async def send(self, event: dict[str, Any]) -> None:
        await self.free.wait()
        self.sent.append(event)

    @property
    def body(self) -> bytes:
        return b"".join(event.get("body", b"") for event in self.sent)


async def test_a_quiet_stream_gets_a_comment_and_a_busy_one_does_not():
    stream, wire = Events(100), Wire()
    stream.ping(stream._last + answer.QUIET_SECONDS - 1)
    assert stream._parts == []
    stream.ping(stream._last + answer.QUIET_SECONDS)
    stream.ping(stream._last + answer.QUIET_SECONDS)
    stream.ended()
    await stream.run(wire.send)
    assert wire.body == b": ping\n\n"


async def test_a_quiet_answer_becomes_a_stream():
    one, wire = JsonOrSseResponse(100), Wire()
    one.ping(one._born + answer.QUIET_SECONDS - 1)
    one.ping(one._born + answer.QUIET_SECONDS)
    one.ping(one._born + answer.QUIET_SECONDS)
    one.replied(jsonrpc.result(b"1", b"{}"))
    await one.run(None, wire.send)  # type: ignore[arg-type]
    assert wire.body.startswith(b": ping\n\nevent: message\ndata: ")


async def test_a_client_that_never_reads_is_cut_off_and_others_are_served(start: Started):
    front = await start(limits={"sse_buffer": 1 << 20})
    deaf, other = await front.greeted(), await front.greeted()
    deaf.writer.transport.pause_reading()
    await deaf.write("GET")
    talk = front.inside.talks[0]
    await front.script.until(lambda: talk.listening == [True])
    count = 0
    while talk.channel.push(CHUNK):
        count += 1
        assert count < 1000
        await asyncio.sleep(0)
    assert (await (await other.ask("echo")).whole()).status == 200
    await front.script.until(lambda: talk.listening == [True, False])


async def stopped(front: Front) -> None:
    front.stop.set()
    await within(front.serving, 12)


async def test_calls_under_way_finish_when_riglm_stops(start: Started):
    front = await start(transport="both")
    peer, modern = await front.greeted(), await front.peer()
    visibility = await (await front.beside(peer)).send("GET")
    response = await peer.ask("hold")
    await modern.write("POST", request("hold", {"_meta": META}), headers={**MODERN, "mcp-method": "hold"})
    asked = [await front.script.held(1), await front.script.held(2)]
    front.stop.set()
    assert (await visibility.whole()).body == b""
    for one in asked:
        one.answer(b'"finished"')
    assert b"finished" in (await response.whole()).body
    assert (await (await Response(modern.reader, modern.writer).head()).whole()).message["result"] == "finished"
    await within(front.serving, 3)
    assert front.inside.talks[0].closed


async def test_calls_that_do_not_finish_are_given_up_when_riglm_stops(
    front: Front, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(http, "_DRAIN_SECONDS", 0.1)
    peer, modern = await front.greeted(), await front.peer()
    response = await peer.ask("hold")
    await modern.write("POST", request("hold", {"_meta": META}), headers={**MODERN, "mcp-method": "hold"})
    await front.script.held(2)
    await stopped(front)
    primer, answer = (await response.whole()).events
    assert primer.data == b""
    for line in (answer.data, (await (await Response(modern.reader, modern.writer).head()).whole()).body):
        assert "riglm is stopping" in json.loads(line)["error"]["message"]
    assert len(front.script.cancelled) == 1
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_subscriptions_end_at_once_when_riglm_stops(front: Front):
    peer = await front.peer()
    headers = {**MODERN, "mcp-method": "subscriptions/listen"}
    await peer.write("POST", request("subscriptions/listen", {"_meta": META}), headers=headers)
    asked = await front.script.held()
    asked.say()
    response = await Response(peer.reader, peer.writer).head()
    await response.event()
    front.stop.set()
    assert (await response.whole()).body == b""
    await within(front.serving, 3)
    assert front.script.cancelled == [asked]


async def test_a_client_that_reads_nothing_does_not_hold_up_the_end(front: Front, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "_DRAIN_SECONDS", 0.1)
    deaf = await front.greeted()
    deaf.writer.transport.pause_reading()
    await deaf.write("GET")
    talk = front.inside.talks[0]
    await front.script.until(lambda: talk.listening == [True])
    for _ in range(80):
        talk.channel.push(CHUNK)
    half = await front.peer()
    half.writer.write(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nx")
    await within(stopped(front), 3)
