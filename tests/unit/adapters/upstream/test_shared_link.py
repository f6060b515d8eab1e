import pytest

from riglm.adapters.mcp.upstream import reconnecting_channel
from riglm.adapters.mcp.upstream.shared_channel import SharedLink
from tests.unit.adapters.upstream.actors import QUICK, SPEC, Ears, Wires, ask, notification, settle

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


async def test_progress_without_an_owner_is_dropped(link, wires, ears):
    without = ask(link, 1, "tools/call")
    wire = await wires.number(1)
    for token in (wire.lines[0]["id"], 99, "x"):
        wire.notify("notifications/progress", {"progressToken": token, "progress": 1})
    assert (without.heard, ears.heard) == ([], [])


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
