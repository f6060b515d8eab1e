"""Streams that can be taken up in front of servers that have none."""

import json

import pytest

from riglm.adapters.mcp.downstream.event_log import MAX_KEPT, EventLog
from riglm.domain import jsonrpc
from tests.unit.adapters.downstream.conftest import Front
from tests.unit.adapters.downstream.peer import Peer, Response


def log_of(front: Front, peer: Peer) -> EventLog:
    return front.app._sessions._open[peer.session.encode()].log


async def take_up(front: Front, peer: Peer, event_id: bytes | None) -> Response:
    assert event_id is not None
    other = await front.beside(peer)
    return await other.send("GET", headers={"last-event-id": event_id.decode()})


async def test_a_lost_answer_is_had_by_its_priming_event(front: Front):
    peer = await front.greeted()
    priming = await (await peer.ask("hold")).event()
    asked = await front.script.held()
    await front.left(peer)
    asked.say()
    asked.answer(b'{"kept":true}')
    resumed = await (await take_up(front, peer, priming.id)).whole()
    assert [b"progress" in event.data for event in resumed.events] == [True, False]
    assert json.loads(resumed.events[1].data)["result"] == {"kept": True}
    assert len(log_of(front, peer)) == 0


async def test_a_lost_stream_goes_on_where_it_broke_off_and_stays_open_for_the_answer(front: Front):
    peer = await front.greeted()
    response = await peer.ask("hold")
    await response.event()
    asked = await front.script.held()
    asked.say(jsonrpc.notification("notifications/one"))
    first = await response.event()
    await front.left(peer)
    asked.say(jsonrpc.notification("notifications/two"))
    resumed = await take_up(front, peer, first.id)
    assert b"two" in (await resumed.event()).data
    asked.say(jsonrpc.notification("notifications/three"))
    assert b"three" in (await resumed.event()).data
    asked.answer()
    assert b"result" in (await resumed.event()).data
    assert (await resumed.whole()).body == b""


async def test_taking_a_stream_up_ends_the_one_before(front: Front):
    peer = await front.greeted()
    response = await peer.ask("hold")
    priming = await response.event()
    asked = await front.script.held()
    resumed = await take_up(front, peer, priming.id)
    assert (await response.whole()).body == b""
    asked.answer()
    assert b"result" in (await resumed.event()).data


async def test_the_oldest_events_make_room(front: Front):
    peer = await front.greeted()
    priming = await (await peer.ask("hold")).event()
    asked = await front.script.held()
    await front.left(peer)
    for number in range(30):
        asked.say(jsonrpc.notification("notifications/x", b'{"n":%d,"pad":"%b"}' % (number, b"x" * 100_000)))
    log = log_of(front, peer)
    assert 900_000 < log.size <= MAX_KEPT
    asked.answer()
    resumed = await (await take_up(front, peer, priming.id)).whole()
    assert b"result" in resumed.events[-1].data
    assert json.loads(resumed.events[0].data)["params"]["n"] >= 19


async def test_an_answer_too_large_to_keep_is_refused_rather_than_silent(front: Front):
    peer = await front.greeted()
    priming = await (await peer.ask("hold")).event()
    asked = await front.script.held()
    await front.left(peer)
    asked.answer(b'"%b"' % (b"x" * 2_000_000))
    refused = await (await take_up(front, peer, priming.id)).whole()
    assert refused.status == 400
    assert (len(log_of(front, peer)), log_of(front, peer).size) == (0, 0)


@pytest.mark.parametrize("event_id", ["1-0", "99-0", "x", "", "1", "1-x", "1-99999999999999999999", "-", "1-\xe9"])
async def test_an_unknown_event_is_refused(front: Front, event_id: str):
    peer = await front.greeted()
    await (await peer.ask("echo")).whole()
    refused = await (await peer.send("GET", headers={"last-event-id": event_id})).whole()
    assert refused.status == 400
    assert "nothing is kept" in refused.message["error"]["message"]


async def test_another_session_cannot_take_a_stream_up(front: Front):
    peer = await front.greeted()
    priming = await (await peer.ask("hold")).event()
    stranger = await front.greeted()
    refused = await (await stranger.send("GET", headers={"last-event-id": (priming.id or b"").decode()})).whole()
    assert refused.status == 400


async def test_an_event_behind_which_nothing_comes_is_refused(front: Front):
    peer = await front.greeted()
    priming = await (await peer.ask("hold")).event()
    asked = await front.script.held()
    await front.left(peer)
    asked.answer()
    number = (priming.id or b"").split(b"-")[0]
    refused = await (await take_up(front, peer, number + b"-1")).whole()
    assert refused.status == 400


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", None])
async def test_a_client_that_does_not_know_of_it_gets_plain_json(front: Front, version: str | None):
    peer = await front.greeted()
    answer = await (await peer.ask("echo", headers={"mcp-protocol-version": version})).whole()
    assert answer.headers["content-type"] == "application/json"
    assert answer.message["result"] == {}


@pytest.mark.parametrize(("asked", "named"), [("a", "a"), (7, "7")])
async def test_a_cancelled_request_ends_its_stream_and_cannot_be_taken_up(front: Front, asked: object, named: str):
    peer = await front.greeted()
    response = await peer.ask("hold", key=asked)
    priming = await response.event()
    other = await front.beside(peer)
    assert (await other.notify("notifications/cancelled", {"requestId": named})).status == 202
    assert (await response.whole()).body == b""
    (await front.script.held()).answer()
    assert (await (await take_up(front, peer, priming.id)).whole()).status == 400
    assert front.app._sessions._open[peer.session.encode()].is_idle
