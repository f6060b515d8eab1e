import pytest

from riglm.adapters.mcp.upstream.shared_channel import SharedLink
from tests.unit.adapters.upstream.actors import QUICK, SPEC, ask, settle

LOG_LEVEL = {"_meta": {"io.modelcontextprotocol/logLevel": "info"}}


@pytest.fixture
async def link(wires, ears):
    link = SharedLink(SPEC, wires, ears, QUICK)
    yield link
    await link.close()


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


async def test_where_there_is_one_client_each_notification_reaches_it(link, wires, ears):
    listening = ask(link, 0, "subscriptions/listen")
    calls = [ask(link, number, "tools/call", LOG_LEVEL, has_unique_id=True) for number in (1, 2)]
    wire = await wires.number(1)
    for method in ("notifications/vendor", "notifications/message"):
        wire.notify(method, {"data": 1})
    assert (len(calls[1].heard), listening.heard, ears.heard) == (2, [], [])


@pytest.mark.parametrize("given", [1.0, 1, "1"])
async def test_what_a_subscription_brings_may_spell_its_id_in_another_way(link, wires, given):
    listening = ask(link, 1.0, "subscriptions/listen", has_unique_id=True)
    meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": given}}
    (await wires.number(1)).notify("notifications/tools/list_changed", meta)
    (heard,) = listening.heard
    assert b'"io.modelcontextprotocol/subscriptionId":1.0' in heard.line


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
