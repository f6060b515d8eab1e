"""Sessions over Streamable HTTP: who gets in, what is open, and what is left behind."""

import asyncio
import json
import logging

import pytest

from riglm.adapters.mcp.downstream import http_sessions
from riglm.domain import jsonrpc
from riglm.domain.session import Transport
from riglm.ports.downstream import Caller
from riglm.ports.upstream import EventPosition
from tests.unit.adapters.downstream.conftest import Front, Started
from tests.unit.adapters.downstream.peer import Response, request, within

TOKEN = "a-token-of-some-length-0123"


async def test_a_session_is_opened_used_and_closed(front: Front):
    peer = await front.peer()
    greeting = await peer.greet()
    assert greeting.message["result"]["serverInfo"] == {"name": "s", "version": "1"}
    assert (await peer.notify("notifications/initialized")).status == 202
    assert front.script.told[-1].method == "notifications/initialized"
    assert (await (await peer.ask("echo", {"a": 1})).whole()).status == 200
    assert (await (await peer.send("DELETE")).whole()).status == 200
    assert (await (await peer.ask("echo")).whole()).status == 404
    await front.script.until(lambda: front.inside.talks[0].closed)
    assert len(front.app._sessions) == 0


async def test_a_refused_greeting_opens_no_session(front: Front):
    peer = await front.peer()
    front.script.take = lambda message, sink: sink.replied(jsonrpc.error(message.id, -32602, "no"))  # type: ignore[method-assign]
    answer = await peer.greet()
    assert answer.message["error"]["code"] == -32602
    assert "mcp-session-id" not in answer.headers
    assert len(front.app._sessions) == 0
    await front.script.until(lambda: front.inside.talks[0].closed)


async def test_a_client_that_leaves_during_the_greeting_leaves_a_session_that_is_idle(front: Front):
    peer = await front.peer()
    kept = []
    front.script.take = lambda message, sink: kept.append((message, sink))  # type: ignore[method-assign]
    await peer.write("POST", request("initialize"))
    await front.left(peer)
    message, sink = kept[0]
    sink.replied(jsonrpc.result(message.id, b"{}"))
    await (await (await front.peer()).send("GET", path="/elsewhere")).whole()
    (session,) = front.app._sessions._open.values()
    assert session.is_idle


@pytest.mark.parametrize("session", ["unknown", "", "x" * 5000, "\xff\xfe"])
async def test_an_unknown_session_is_not_found(front: Front, session: str):
    peer = await front.peer()
    for method, body in (("POST", request("echo")), ("GET", None), ("DELETE", None)):
        answer = await (await peer.send(method, body, headers={"mcp-session-id": session})).whole()
        assert answer.status == 404
        assert answer.message["error"]["message"] == "Session not found: initialize again"


async def test_a_request_without_a_session_is_refused(front: Front):
    peer = await front.peer()
    for method, body in (("POST", request("echo")), ("GET", None), ("DELETE", None)):
        answer = await (await peer.send(method, body)).whole()
        assert answer.status == 400
        assert "missing session ID" in answer.message["error"]["message"]


async def test_a_session_is_bound_to_its_principal(front: Front):
    peer = await front.greeted()
    (session,) = front.app._sessions._open.values()
    session.owner = "someone else"
    assert (await (await peer.ask("echo")).whole()).status == 404


async def test_the_session_is_told_who_calls(front: Front):
    peer = await front.peer()
    await (await peer.ask("initialize", headers={"x-riglm-session": "mine"})).whole()
    caller = front.inside.talks[0].caller
    assert (caller.transport, caller.handle, caller.address, caller.principal) == ("http", "mine", "127.0.0.1", "")


async def test_a_token_is_asked_for_and_names_the_principal(start: Started):
    front = await start(token=TOKEN)
    peer = await front.peer()
    refused = await (await peer.ask("initialize")).whole()
    assert refused.status == 401
    assert refused.headers["www-authenticate"] == 'Bearer realm="riglm"'
    for wrong in ("Bearer nonsense", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x"):
        assert (await (await peer.ask("initialize", headers={"authorization": wrong})).whole()).status == 401
    assert (await (await peer.ask("initialize", headers={"authorization": f"bearer {TOKEN}"})).whole()).status == 200
    assert front.inside.talks[0].caller.principal == "bearer"


async def test_the_server_speaks_over_the_open_stream(front: Front):
    peer = await front.greeted()
    channel = front.inside.talks[0].channel
    assert not channel.push(jsonrpc.notification("early"))
    stream = await (await front.beside(peer)).send("GET")
    assert stream.headers["content-type"] == "text/event-stream"
    assert stream.headers["mcp-session-id"] == peer.session
    await front.script.until(lambda: front.inside.talks[0].listening == [True])
    assert channel.push(jsonrpc.notification("notifications/x"), EventPosition(b"their-7", 50))
    event = await stream.event()
    assert json.loads(event.data)["method"] == "notifications/x"
    assert (event.id, event.retry_ms) == (b"their-7", 50)


async def test_a_second_stream_conflicts_until_the_first_was_left(front: Front):
    peer = await front.greeted()
    first = await front.beside(peer)
    await first.send("GET")
    conflict = await (await (await front.beside(peer)).send("GET")).whole()
    assert conflict.status == 409
    await front.left(first)
    assert front.inside.talks[0].listening == [True, False]
    assert (await (await front.beside(peer)).send("GET")).status == 200


async def test_closing_a_session_ends_its_streams_and_answers(front: Front):
    peer = await front.greeted()
    stream = await (await front.beside(peer)).send("GET")
    asking = await front.beside(peer)
    response = await asking.ask("hold")
    await response.event()
    assert (await (await peer.send("DELETE")).whole()).status == 200
    assert (await stream.whole()).body == b""
    assert (await response.whole()).body == b""
    await front.script.until(lambda: front.inside.talks[0].closed)
    assert front.inside.talks[0].listening == [True]


async def test_a_call_goes_on_when_its_client_left(front: Front):
    peer = await front.greeted()
    await peer.write("POST", request("hold"))
    asked = await front.script.held()
    await front.left(peer)
    assert not asked.done
    assert front.script.cancelled == []
    (session,) = front.app._sessions._open.values()
    assert not session.is_idle
    asked.answer()
    await (await (await front.peer()).send("GET", path="/elsewhere")).whole()
    assert session.is_idle


@pytest.mark.parametrize("resumable", [True, False])
async def test_a_cancelled_request_ends_without_an_answer(start: Started, resumable: bool):
    front = await start(resumable=resumable)
    peer = await front.greeted()
    await peer.write("POST", request("hold", key=5))
    await front.script.held()
    other = await front.beside(peer)
    await other.notify("notifications/cancelled", {"requestId": 5})
    answer = await (await Response(peer.reader, peer.writer).head()).whole()
    assert not [event for event in answer.events if event.data]
    (session,) = front.app._sessions._open.values()
    assert session.is_idle


async def test_a_cancellation_that_names_nothing_open_is_passed_on(front: Front):
    peer = await front.greeted()
    for params in ({"requestId": 99}, {}, None):
        assert (await peer.notify("notifications/cancelled", params)).status == 202
    assert len([one for one in front.script.told if one.method == "notifications/cancelled"]) == 3


async def test_two_requests_of_one_id_each_get_an_answer(front: Front):
    peer = await front.greeted()
    first = await front.beside(peer)
    await first.write("POST", request("hold", key="same"))
    one = await front.script.held()
    assert (await (await peer.ask("echo", key="same")).whole()).status == 200
    one.answer()
    assert b"result" in (await (await Response(first.reader, first.writer).head()).whole()).body


async def test_two_requests_of_one_id_are_both_let_go_at_the_end(front: Front):
    peers = [await front.greeted()]
    peers += [await front.beside(peers[0]) for _ in range(2)]
    for peer in peers[1:]:
        await peer.write("POST", request("hold", key="same"))
    await front.script.held(2)
    assert (await (await peers[0].send("DELETE")).whole()).status == 200
    for peer in peers[1:]:
        assert (await (await Response(peer.reader, peer.writer).head()).whole()).status == 200


async def test_an_answer_of_the_upstream_keeps_its_events_and_ids(start: Started):
    front = await start(resumable=True)
    peer = await front.greeted()
    await peer.write("POST", request("hold"))
    asked = await front.script.held()
    asked.sink.primed(EventPosition(b"p", 20))
    asked.say(event=EventPosition(b"q"))
    asked.answer(event=EventPosition(b"r"))
    answer = await (await Response(peer.reader, peer.writer).head()).whole()
    assert [(event.id, event.retry_ms) for event in answer.events] == [(b"p", 20), (b"q", None), (b"r", None)]


async def test_a_stream_that_the_upstream_breaks_off_is_broken_off(start: Started):
    front = await start(resumable=True)
    peer = await front.greeted()
    await peer.write("POST", request("hold"))
    asked = await front.script.held()
    asked.sink.primed(EventPosition(b"p"))
    asked.sink.interrupted()
    answer = await (await Response(peer.reader, peer.writer).head()).whole()
    assert [event.id for event in answer.events] == [b"p"]


async def test_idle_sessions_are_closed(start: Started):
    front = await start(session_idle=0.05)
    peer = await front.greeted()
    await front.script.until(lambda: front.inside.talks[0].closed)
    assert (await (await peer.ask("echo")).whole()).status == 404


async def test_many_idle_sessions_are_closed_a_few_at_a_time(front: Front, monkeypatch: pytest.MonkeyPatch):
    sessions = front.app._sessions
    monkeypatch.setattr(http_sessions, "_MAX_CLOSING", 3)
    monkeypatch.setattr(http_sessions, "_WORTH_COLLECTING", 10)
    at_once: list[int] = []
    front.inside.on_close = lambda: at_once.append(len(sessions._closing))
    caller = Caller(transport=Transport.HTTP)
    opened = [sessions.open(caller) for _ in range(12)]
    for session in opened:
        assert session
        session.last_used -= 10_000
    reaping = asyncio.create_task(sessions.reap())
    await front.script.until(lambda: front.inside.talks[2].closed)
    last = opened[-1]
    assert last
    assert sessions.find(last.id, caller) is last
    await within(reaping)
    assert (len(sessions), last.is_open, max(at_once)) == (1, True, 3)


async def test_sessions_in_use_are_not_idle(front: Front):
    asking, listening, quiet = [await front.greeted() for _ in range(3)]
    response = await asking.ask("hold")
    stream = await listening.send("GET")
    for session in front.app._sessions._open.values():
        session.last_used -= 10_000
    await front.app._sessions.reap()
    await front.script.until(lambda: front.inside.talks[2].closed)
    assert [talk.closed for talk in front.inside.talks] == [False, False, True]
    (await front.script.held()).answer()
    assert (await response.event()).data == b""
    assert front.inside.talks[1].channel.push(jsonrpc.notification("x"))
    assert (await stream.event()).data
    assert (await (await quiet.ask("echo")).whole()).status == 404


async def test_the_longest_idle_session_makes_room(start: Started):
    front = await start(max_sessions=2)
    first, second = [await front.greeted() for _ in range(2)]
    await (await first.ask("echo")).whole()
    third = await front.greeted()
    assert (await (await second.ask("echo")).whole()).status == 404
    for peer in (first, third):
        await (await front.beside(peer)).send("GET")
    full = await front.peer()
    refused = await (await full.ask("initialize")).whole()
    assert refused.status == 503
    assert refused.message["error"]["message"] == "Too many open sessions"


async def test_a_session_whose_closing_fails_does_not_keep_others_open(front: Front, caplog: pytest.LogCaptureFixture):
    front.inside.closing_fails = True
    peers = [await front.greeted() for _ in range(3)]
    with caplog.at_level(logging.ERROR):
        await front.app._sessions.close()
    assert [record.message for record in caplog.records] == ["closing a session failed"] * 3
    assert [(await (await peer.ask("echo")).whole()).status for peer in peers] == [404] * 3


async def test_a_failure_inside_is_answered_and_logged_once(front: Front, caplog: pytest.LogCaptureFixture):
    peer = await front.greeted()
    answer = await (await peer.ask("boom", key="b")).whole()
    assert answer.status == 500
    assert answer.message["id"] == "b"
    assert answer.message["error"]["code"] == jsonrpc.INTERNAL_ERROR
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == [
        "a request failed inside riglm"
    ]
    again = await front.beside(peer)
    assert (await (await again.ask("echo")).whole()).status == 200
    (session,) = front.app._sessions._open.values()
    assert session.is_idle


async def test_a_failure_after_the_answer_began_breaks_the_connection(front: Front):
    peer = await front.greeted()
    response = await peer.ask("hold")
    (asked,) = [await front.script.held()]
    asked.sink._reader._wake.set_exception(RuntimeError("as the test wants"))  # type: ignore[attr-defined]
    assert b"0\r\n\r\n" not in await response.broken()


async def test_many_sessions_with_the_same_ids_each_get_their_own_answers(front: Front):
    async def one(number: int) -> None:
        peer = await front.greeted()
        for key in range(5):
            answer = await (await peer.ask("echo", {"nonce": f"{number}/{key}"}, key=key)).whole()
            assert json.loads(answer.events[1].data)["result"] == {"nonce": f"{number}/{key}"}
        peer.leave()

    await within(asyncio.gather(*(one(number) for number in range(50))), 30)
