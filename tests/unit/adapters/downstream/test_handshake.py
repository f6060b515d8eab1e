"""Sessions over Streamable HTTP: who gets in, what is open, and what is left behind."""

from riglm.domain import jsonrpc
from tests.unit.adapters.downstream.conftest import Front, Started
from tests.unit.adapters.downstream.peer import Response, request


async def test_a_second_stream_conflicts_until_the_first_was_left(front: Front):
    peer = await front.greeted()
    first = await front.beside(peer)
    await first.send("GET")
    conflict = await (await (await front.beside(peer)).send("GET")).whole()
    assert conflict.status == 409
    await front.left(first)
    assert front.inside.talks[0].listening == [True, False]
    assert (await (await front.beside(peer)).send("GET")).status == 200


async def test_two_requests_of_one_id_each_get_an_answer(front: Front):
    peer = await front.greeted()
    first = await front.beside(peer)
    await first.write("POST", request("hold", key="same"))
    one = await front.script.held()
    assert (await (await peer.ask("echo", key="same")).whole()).status == 200
    one.answer()
    assert b"result" in (await (await Response(first.reader, first.writer).head()).whole()).body


async def test_idle_sessions_are_closed(start: Started):
    front = await start(session_idle=0.05)
    peer = await front.greeted()
    await front.script.until(lambda: front.inside.talks[0].closed)
    assert (await (await peer.ask("echo")).whole()).status == 404


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


async def test_a_failure_after_the_answer_began_breaks_the_connection(front: Front):
    peer = await front.greeted()
    response = await peer.ask("hold")
    (asked,) = [await front.script.held()]
    asked.sink._stream.reader._wake.set_exception(RuntimeError("as the test wants"))  # type: ignore[attr-defined]
    assert b"0\r\n\r\n" not in await response.broken()
