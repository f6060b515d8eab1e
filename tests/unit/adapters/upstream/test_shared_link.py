import pytest

from riglm.adapters.mcp.upstream import deadlines, reconnecting_channel
from riglm.adapters.mcp.upstream.deadlines import UpstreamTimeouts
from riglm.adapters.mcp.upstream.shared_channel import SharedLink
from riglm.domain.errors import UpstreamUnavailableError
from riglm.domain.invocation import ErrorKind
from tests.unit.adapters.upstream.actors import QUICK, SPEC, Ears, Rest, Wires, ask, notification, settle

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
LOG_LEVEL = {"_meta": {"io.modelcontextprotocol/logLevel": "info"}}


@pytest.fixture
def wires() -> Wires:
    return Wires()


@pytest.fixture
def ears() -> Ears:
    return Ears()


@pytest.fixture
async def link(wires, ears):
    link = SharedLink(SPEC, wires, ears, QUICK)
    yield link
    await link.close()


@pytest.fixture(autouse=True)
def _restart_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnecting_channel, "_INITIAL_BACKOFF", 0.001)


async def test_clients_with_equal_ids_get_their_own_answers_under_their_own_ids(link, wires):
    answers = [ask(link, identifier, "tools/call", {"nonce": n}) for n, identifier in enumerate([1, 1, "1", "\u00e9"])]
    wire = await wires.number(1)
    assert len({line["id"] for line in wire.lines}) == 4
    for line in reversed(wire.lines):
        wire.answer(line, line["params"])
    assert [await answer.result() for answer in answers] == [{"nonce": n} for n in range(4)]
    assert [answer.raw["id"] for answer in answers] == [1, 1, "1", "\u00e9"]


async def test_clients_with_equal_progress_tokens_hear_of_their_own_progress(link, wires):
    one, two = (ask(link, 1, "tools/call", {"_meta": {"progressToken": "t", "x": 1.0}}) for _ in range(2))
    wire = await wires.number(1)
    tokens = [line["params"]["_meta"]["progressToken"] for line in wire.lines]
    wire.notify("notifications/progress", {"progressToken": tokens[1], "progress": 5, "x": 1})
    assert (one.heard, len(two.heard)) == ([], 1)
    assert b'"progressToken":"t"' in two.heard[0].line
    assert b'"x":1.0' in wire.raw[0]


async def test_progress_without_an_owner_is_dropped(link, wires, ears):
    without = ask(link, 1, "tools/call")
    wire = await wires.number(1)
    for token in (wire.lines[0]["id"], 99, "x"):
        wire.notify("notifications/progress", {"progressToken": token, "progress": 1})
    assert (without.heard, ears.heard) == ([], [])


async def test_a_cancelled_request_is_cancelled_under_the_id_that_the_server_knows(link, wires):
    one, two, three = (ask(link, 1, "tools/call") for _ in range(3))
    wire = await wires.number(1)
    link.cancel(two, notification("notifications/cancelled", {"requestId": 1, "reason": "why", "x": 1}))
    link.cancel(two, None)
    link.cancel(three, None)
    given = [line["params"] for line in wire.lines if line["method"] == "notifications/cancelled"]
    assert given[0] == {"requestId": wire.lines[1]["id"], "reason": "why", "x": 1}
    assert [params["requestId"] for params in given] == [wire.lines[1]["id"], wire.lines[2]["id"]]
    wire.answer(wire.lines[1])
    wire.answer(wire.lines[0], "mine")
    assert await one.result() == "mine"
    assert not two.over.is_set()


async def test_subscriptions_speak_of_the_clients_own_id(link, wires):
    one, two = ask(link, "s", "subscriptions/listen"), ask(link, "s", "subscriptions/listen")
    wire = await wires.number(1)
    number = wire.lines[1]["id"]
    wire.notify("notifications/tools/list_changed", {"_meta": {SUBSCRIPTION: number}})
    wire.notify("notifications/tools/list_changed", {"_meta": {SUBSCRIPTION: 99}})
    assert (one.heard, len(two.heard)) == ([], 1)
    assert b'"%b":"s"' % SUBSCRIPTION.encode() in two.heard[0].line
    wire.answer(wire.lines[1], {"_meta": {SUBSCRIPTION: number}, "x": 1})
    assert await two.result() == {"_meta": {SUBSCRIPTION: "s"}, "x": 1}
    wire.answer(wire.lines[0], {"x": 1})
    assert await one.result() == {"x": 1}


async def test_a_log_message_goes_to_the_only_request_that_asked_for_logs(link, wires, ears):
    one, deaf = ask(link, 1, "tools/call", LOG_LEVEL), ask(link, 2, "tools/call")
    wire = await wires.number(1)
    wire.notify("notifications/message", {"data": 1})
    ask(link, 3, "tools/call", LOG_LEVEL)
    wire.notify("notifications/message", {"data": 2})
    assert (len(one.heard), deaf.heard, ears.heard) == (1, [], [])


async def test_requests_of_the_server_are_refused_in_this_era(link, wires):
    ask(link, 1, "tools/call")
    wire = await wires.number(1)
    wire.ask("q", "roots/list")
    assert (wire.lines[-1]["id"], wire.lines[-1]["error"]["code"]) == ("q", -32601)


async def test_other_notifications_belong_to_the_only_request_in_flight_or_to_none(link, wires, ears):
    one = ask(link, 1, "tools/call")
    wire = await wires.number(1)
    wire.notify("notifications/vendor")
    ask(link, 2, "tools/call")
    wire.notify("notifications/vendor")
    assert (len(one.heard), ears.methods) == (1, ["notifications/vendor"])


async def test_a_subscription_that_the_server_ends_has_no_answer(link, wires):
    one, two = ask(link, "s", "subscriptions/listen"), ask(link, "s", "subscriptions/listen")
    wire = await wires.number(1)
    for request_id in (wire.lines[1]["id"], 99):
        wire.notify("notifications/cancelled", {"requestId": request_id, "reason": "bye"})
    assert "ended the subscription" in await two.words()
    assert b'"requestId":"s"' in two.heard[0].line
    assert (one.heard, one.over.is_set()) == ([], False)


async def test_notifications_of_clients_pass_but_not_cancellations_by_unknown_ids(link, wires):
    link.send(notification("notifications/vendor"))
    ask(link, 1, "tools/call")
    wire = await wires.number(1)
    link.send(notification("notifications/vendor"))
    link.send(notification("notifications/cancelled", {"requestId": 1}))
    assert wire.methods == ["tools/call", "notifications/vendor"]


async def test_a_crash_fails_what_is_in_flight_and_the_next_request_starts_anew(link, wires):
    one = ask(link, 1, "tools/call")
    (await wires.number(1)).receiver.ended("exited with code 1")
    assert await one.words() == "upstream 'server' exited with code 1"
    two = ask(link, 1, "tools/call")
    wire = await wires.number(2)
    wire.answer(wire.lines[0])
    await two.result()


async def test_a_message_that_cannot_be_sent_fails_that_request_alone(link, wires):
    wires.failures.append(UpstreamUnavailableError("cannot run"))
    assert await ask(link, 1, "tools/call").words() == "upstream 'server' cannot run"
    one = ask(link, 1, "tools/call")
    wire = await wires.number(1)
    wire.refusal = "does not read its input"
    assert await ask(link, 1, "tools/call").words() == "upstream 'server' does not read its input"
    wire.answer(wire.lines[0])
    await one.result()


async def test_an_unreadable_answer_fails_its_request_and_noise_fails_none(link, wires):
    one, two = ask(link, "x", "tools/call"), ask(link, "x", "tools/call")
    wire = await wires.number(1)
    wire.say(b"Loading...")
    wire.say(b'{"jsonrpc":"2.0","id":%d,"result":NaN}' % wire.lines[0]["id"])
    assert "unreadable answer" in await one.words()
    assert not two.over.is_set()
    wire.receiver.missed("sent too much")
    assert await two.words() == "upstream 'server' sent too much"
    assert two.failure[0] is ErrorKind.PROTOCOL


async def test_a_request_past_its_deadline_is_cancelled_upstream(wires, ears, monkeypatch):
    monkeypatch.setattr(deadlines, "_SWEEP_SECONDS", 0.01)
    link = SharedLink(SPEC, wires, ears, UpstreamTimeouts(call=0.05, initialize=0.05))
    call, initialize = ask(link, "c", "tools/call"), ask(link, "i", "initialize")
    await call.words()
    await initialize.words()
    wire = await wires.number(1)
    cancelled = [line["params"]["requestId"] for line in wire.lines if line["method"] == "notifications/cancelled"]
    assert cancelled == [wire.lines[0]["id"]]
    await link.close()


async def test_closing_ends_what_is_in_flight_and_the_channel(link, wires):
    answer = ask(link, 1, "tools/call")
    wire = await wires.number(1)
    assert link.is_open
    await link.close()
    assert "closed" in await answer.words()
    assert (wire.closed, link.is_open) == (1, False)


async def test_a_pipe_has_no_place_to_resume_and_always_listens(link, wires):
    rest = Rest()
    link.listen(listening=True)
    link.resume(b"7", rest)
    assert rest.over.is_set()
    assert (wires.all, link.resumable) == ([], False)


async def test_a_server_that_refused_everything_can_be_released(link, wires):
    assert link.release() is None
    one, two = ask(link, 1, "server/discover"), ask(link, 2, "tools/list")
    wire = await wires.number(1)
    wire.refuse(wire.lines[0])
    assert link.release() is None, "something is still in flight"
    wire.refuse(wire.lines[1])
    await one.error()
    await two.error()
    assert link.release() is wire
    assert link.release() is None
    assert wire.closed == 0


@pytest.mark.parametrize("case", ["understood", "understood too late", "silent", "restarted"])
async def test_a_server_that_may_cling_to_this_era_or_hang_is_closed_instead(link, wires, case):
    one, two = ask(link, 1, "server/discover"), ask(link, 2, "server/discover")
    wire = await wires.number(1)
    if case == "understood":
        wire.answer(wire.lines[0])
        wire.refuse(wire.lines[1])
    elif case == "understood too late":
        link.cancel(one, None)
        wire.answer(wire.lines[0])
        wire.refuse(wire.lines[1])
    else:
        link.cancel(one, None)
        link.cancel(two, None)
    if case == "restarted":
        wire.refuse(wire.lines[0])
        wire.receiver.ended("exited")
        link.cancel(ask(link, 3, "server/discover"), None)
        wire = await wires.number(2)
    assert link.release() is None
    await settle()
    assert wire.closed == 1
