from typing import Any

from tests.interaction import text
from tests.interaction.clients.message import Message
from tests.interaction.clients.raw import HANDSHAKE, MODERN, Exchange, RawClient
from tests.interaction.log import ServerLog
from tests.interaction.route import CORNERS, CROSSED, MAIN, Route, routes
from tests.interaction.stage import Stage

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
ALL = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


async def names(client: RawClient) -> list[str]:
    return [tool["name"] for tool in (await client.request("tools/list")).decoded()["tools"]]


async def listening(client: RawClient, wanted: dict[str, Any], identifier: object) -> Exchange:
    """An open subscription that was acknowledged."""
    exchange = await client.start("subscriptions/listen", {"notifications": wanted}, id=identifier)
    told = await client.wait_for(ACKNOWLEDGED, lambda message: stamp(message) == identifier)
    assert told.decoded("params")["notifications"] == wanted
    return exchange


def stamp(message: Message) -> object:
    """The id of the subscription that a message belongs to."""
    found: object = text.value(message.params).get("_meta", {}).get(SUBSCRIPTION)
    return found


def shared_state(route: Route) -> bool:
    """Whether all clients of the route reach one server process."""
    return route.back != "stdio" or (route.front != "stdio" and route.era == MODERN)


@routes(CROSSED, HANDSHAKE)
async def test_a_changed_list_is_announced_and_listed(stage: Stage, route: Route):
    async with stage.client(route) as client:
        assert "extra" not in await names(client)
        await client.call("change", {"what": "tools"})
        await client.wait_for("notifications/tools/list_changed")
        assert "extra" in await names(client)
        await client.call("change", {"what": "tools"})
        await client.wait_for("notifications/tools/list_changed", count=2)
        assert "extra" not in await names(client)
        for what in ("prompts", "resources"):
            await client.call("change", {"what": what})
            await client.wait_for(f"notifications/{what}/list_changed")


@routes(CROSSED, HANDSHAKE)
async def test_a_change_is_announced_to_every_client_of_the_server(stage: Stage, route: Route):
    async with stage.client(route) as one, stage.client(route) as other:
        await one.call("change", {"what": "prompts"})
        await one.wait_for("notifications/prompts/list_changed")
        if shared_state(route):
            await other.wait_for("notifications/prompts/list_changed")


@routes(CROSSED, HANDSHAKE)
async def test_updates_reach_subscribers_until_they_unsubscribe(stage: Stage, route: Route):
    uri, updated = "note://scripted/one", "notifications/resources/updated"
    async with stage.client(route) as client:
        await client.request("resources/subscribe", {"uri": uri})
        await client.call("change", {"what": uri})
        assert (await client.wait_for(updated)).decoded("params") == {"uri": uri}
        await client.request("resources/unsubscribe", {"uri": uri})
        await client.call("change", {"what": uri})
        await client.call("change", {"what": "prompts"})
        await client.wait_for("notifications/prompts/list_changed")
        assert len([message for message in client.notifications if message.method == updated]) == 1


@routes(MAIN, MODERN)
async def test_a_listener_hears_what_it_asked_for_stamped_with_its_id(stage: Stage, route: Route):
    uri = "note://scripted/one"
    async with stage.client(route) as client:
        for identifier in (7, "li\u00e9sten", "0"):
            exchange = await listening(client, {"toolsListChanged": True, "resourceSubscriptions": [uri]}, identifier)
            client.notifications.clear()
            await client.call("change", {"what": "tools"})
            told = await client.wait_for("notifications/tools/list_changed")
            assert stamp(told) == identifier
            await client.call("change", {"what": uri})
            assert (await client.wait_for("notifications/resources/updated")).decoded("params") == {
                "uri": uri,
                "_meta": {SUBSCRIPTION: identifier},
            }
            await client.call("change", {"what": "prompts"})
            await client.call("change", {"what": "tools"})
            await client.wait_for("notifications/tools/list_changed", count=2)
            assert [m for m in client.notifications if m.method and m.method.startswith("notifications/prompts")] == []
            await exchange.cancel()


@routes(CORNERS, MODERN)
async def test_listeners_with_the_same_id_hear_what_each_asked_for(stage: Stage, route: Route):
    async with stage.client(route) as one, stage.client(route) as other:
        await listening(one, {"toolsListChanged": True}, "same")
        await listening(other, {"promptsListChanged": True}, "same")
        for client in (one, other):
            await client.call("change", {"what": "tools"})
            await client.call("change", {"what": "prompts"})
        assert stamp(await one.wait_for("notifications/tools/list_changed")) == "same"
        assert stamp(await other.wait_for("notifications/prompts/list_changed")) == "same"
        assert {message.method for message in one.notifications} == {ACKNOWLEDGED, "notifications/tools/list_changed"}
        assert {message.method for message in other.notifications} == {
            ACKNOWLEDGED,
            "notifications/prompts/list_changed",
        }


@routes(MAIN, MODERN)
async def test_a_subscription_that_is_given_up_ends_upstream(stage: Stage, route: Route):
    log = stage.log()
    async with stage.client(route) as client:
        exchange = await listening(client, ALL, "short")
        await exchange.cancel()
        await log.wait_for(lambda entry: entry.details.get("method") == "subscriptions/listen")
        await client.call("change", {"what": "tools"})
        assert [message.method for message in client.notifications] == [ACKNOWLEDGED]


@routes(MAIN, HANDSHAKE)
async def test_changes_of_a_modern_upstream_are_announced_to_a_handshake_client(stage: Stage, route: Route):
    log = stage.log("--eras", "modern")
    async with stage.client(route, "--eras", "modern") as client:
        await _until_bridged(log, client)
        await client.call("change", {"what": "tools"})
        await client.wait_for("notifications/tools/list_changed")
        assert "extra" in await names(client)


async def _until_bridged(log: ServerLog, client: RawClient) -> None:
    await names(client)
    await log.wait_for(lambda entry: entry.event == "received" and entry.method == "subscriptions/listen")


@routes(MAIN, HANDSHAKE)
async def test_a_storm_of_changes_leaves_the_final_state(stage: Stage, route: Route):
    async with stage.client(route) as client:
        state = (await client.call("change", {"what": "tools", "times": 2001}, within=60)).words
        await client.wait_for("notifications/tools/list_changed")
        assert state == "extra"
        assert "extra" in await names(client)
        assert (await client.call("nonce", {"nonce": "calm"})).words == "calm"
