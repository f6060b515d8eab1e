"""riglm's own tools, through real pipes and sockets."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from mcp import Client

from tests.interaction import text
from tests.interaction.clients.message import Message
from tests.interaction.clients.raw import HANDSHAKE, MODERN, RawClient
from tests.interaction.route import CORNERS, CROSSED, RIGLM, Route, routes
from tests.interaction.stage import Stage
from tests.interaction.test_change_notifications import listening, stamp
from tests.interaction.test_client_libraries import MODES, sdk_client
from tests.waiting import wait_until_async

NAMES = (
    "email_send,slack_post,calendar_create,calendar_delete,file_read,file_write,file_delete,git_commit,git_push,"
    "git_status,db_query,db_insert,web_search,web_fetch,image_resize,image_crop,music_play,music_stop,weather_get,"
    "stock_quote,map_route,translate_text,pdf_merge,zip_extract"
)
MANY = ("--tools", NAMES)
ENFORCE = {
    "RIGLM_FILTERING__MODE": "enforce",
    "RIGLM_FILTERING__COVERAGE": "0.9",
    "RIGLM_FILTERING__MIN_TOOLS": "2",
    "RIGLM_FILTERING__MAX_TOOLS": "3",
    "RIGLM_FILTERING__COLD_START_LIMIT": "3",
    "RIGLM_FILTERING__META_TOOLS__INDEX_STATUS": "true",
}
"""Lists hold two or three tools, and follow the context on the surface `dynamic`."""

DYNAMIC = {**ENFORCE, "RIGLM_FILTERING__SURFACE": "dynamic"}
CONTEXT = "send a notification about the incident to the team"
LESSONS = 14
CHANGED = "notifications/tools/list_changed"
THREAD = "threadId"
OWN = {"set_context", "search_available_tools", "index_status"}

Call = Callable[[str, dict[str, Any], str], Awaitable[Any]]
"""Calls a tool in a conversation, and gives what the text of its result holds."""


async def reached(call: Call, holds: Callable[[dict[str, Any]], bool]) -> None:
    """Wait until riglm says of itself what is waited for."""

    async def is_reached() -> bool:
        return holds(await call("index_status", {}, "status"))

    await wait_until_async(is_reached)


async def example(call: Call) -> None:
    """Conversations in which the same two tools were used for the same purpose, until riglm has learned that."""
    await call("set_context", {"context": "wake up"}, "status")
    await reached(call, lambda status: status["tools"]["embedded"] == len(NAMES.split(",")))
    for training_update in range(LESSONS):
        context = f"send a notification about release {training_update} to the team"
        thread = f"lesson {training_update}"
        await call("set_context", {"context": context}, thread)
        for tool in ("email_send", "slack_post"):
            await call(tool, {}, thread)
    await reached(call, lambda status: status["learned_pairs"] >= 2 * LESSONS)


def raw_call(client: RawClient) -> Call:
    async def call(tool: str, arguments: dict[str, Any], thread: str) -> Any:
        words = (await client.call(tool, arguments, meta={THREAD: thread})).words
        return json.loads(words) if tool in OWN else words

    return call


def sdk_call(client: Client) -> Call:
    async def call(tool: str, arguments: dict[str, Any], thread: str) -> Any:
        meta: Any = {THREAD: thread}
        result = await client.call_tool(tool, arguments, meta=meta)
        assert not result.is_error, result
        [content] = result.content
        return json.loads(content.text) if tool in OWN else content.text

    return call


def names(tools: list[dict[str, Any]]) -> list[str]:
    return [tool["name"] for tool in tools]


@routes(CORNERS)
async def test_a_missed_tool_is_searched_called_and_at_hand_in_its_next_context(stage: Stage, route: Route):
    stage.settings.update(ENFORCE)
    async with sdk_client(stage, route, MODES[route.era], *MANY) as client:
        call = sdk_call(client)

        async def at_hand(thread: str) -> set[str]:
            """The tools that a conversation about the context is sent or has in its list."""
            answer = await call("set_context", {"context": CONTEXT}, thread)
            listed = await client.list_tools(cache_mode="bypass")
            return {*names(answer["tools"]), *(tool.name for tool in listed.tools)}

        await client.list_tools()
        await example(call)
        before = await at_hand("today")
        assert before >= {"email_send", "slack_post"}
        missed = next(tool for tool in ("translate_text", "stock_quote", "pdf_merge") if tool not in before)
        query = {"query": missed.replace("_", " ")}
        found = await call("search_available_tools", query, "today")
        assert missed in names(found["tools"]), found
        assert all(tool["inputSchema"] for tool in found["tools"])
        await call(missed, {}, "today")
        again = await call("search_available_tools", query, "today")
        assert not {*names(found["tools"])} & {*names(again["tools"])}
        for thread in ("again", "and again"):
            await at_hand(thread)
            await call(missed, {}, thread)
        await reached(call, lambda status: status["learned_pairs"] > 2 * LESSONS)
        assert missed in await at_hand("tomorrow")


@routes(CROSSED, HANDSHAKE)
async def test_a_changed_list_is_announced_once_and_then_listed(stage: Stage, route: Route):
    async with stage.client(route, *MANY, env=ENFORCE) as client:
        assert client.greeting is not None
        assert client.greeting.decoded()["capabilities"]["tools"] == {"listChanged": True}
        await client.request("tools/list", meta={THREAD: "today"})
        await example(raw_call(client))
        await client.request("tools/list")
        client.notifications.clear()
        answer = await raw_call(client)("set_context", {"context": CONTEXT}, "today")
        assert "has changed" in answer["message"]
        await client.wait_for(CHANGED)
        listed = (await client.request("tools/list")).decoded()["tools"]
        assert {*names(listed)} >= {"email_send", "slack_post", "search_available_tools", "call_tool"}
        assert len(listed) < 12
        again = (await client.request("tools/list")).decoded()["tools"]
        assert again == listed
        assert len([message for message in client.notifications if message.method == CHANGED]) == 1


@routes(CROSSED, MODERN)
async def test_a_dynamic_list_is_announced_to_those_who_listen(stage: Stage, route: Route):
    async with stage.client(route, *MANY, env=DYNAMIC) as client:
        meta = {THREAD: "today"}
        await client.request("tools/list", meta=meta)
        await example(raw_call(client))
        exchange = await listening(client, {"toolsListChanged": True}, "mine")
        await client.call("set_context", {"context": CONTEXT}, meta=meta)
        assert stamp(await client.wait_for(CHANGED)) == "mine"
        assert len((await client.request("tools/list", meta=meta)).decoded()["tools"]) < 12
        await exchange.cancel()


@routes(CROSSED)
async def test_call_tool_gives_what_the_tool_itself_gives(actors: Stage, route: Route):
    cases = {
        "echo": b'{"n":1.50,"deep":{"u":"\\u00e9"}}',
        "verbatim": b'{"hex":"%b"}' % b'{"content":[],"structuredContent":[1.0],"x":1e2}'.hex().encode(),
        "is_error": b"{}",
        "fail": b'{"code":-32042,"message":"odd","data":{"n":1.0}}',
    }
    log = actors.log()
    async with actors.client(route, env=ENFORCE) as client:
        for name, arguments in cases.items():
            straight = await client.request("tools/call", b'{"name":"%b","arguments":%b}' % (name.encode(), arguments))
            log.mark()
            through = await client.request(
                "tools/call",
                b'{"name":"call_tool","arguments":{"name":"%b","arguments":%b}}' % (name.encode(), arguments),
            )
            assert through.parts.get("result") == straight.parts.get("result"), name
            assert through.parts.get("error") == straight.parts.get("error"), name
            (asked,) = log.received("tools/call")
            assert text.at_path(asked.parts["params"], "arguments") == arguments
            if route.back == "http" and route.era == MODERN:
                assert asked.headers["mcp-name"] == name


async def guess(client: RawClient, name: str) -> dict[str, Any]:
    """Call a tool by call_tool under a name that no tool has, and return what the error contains."""
    params = {"name": "call_tool", "arguments": {"name": name, "arguments": {"place": "here"}}}
    result = (await client.request("tools/call", params)).decoded()
    assert result["isError"]
    found: dict[str, Any] = json.loads(result["content"][0]["text"])
    assert found["message"].startswith(f"Unknown tool: {name}. Call one of these with call_tool")
    return found


@routes(CROSSED)
async def test_call_tool_answers_a_guessed_name_with_the_tools_that_it_matches(stage: Stage, route: Route):
    log = stage.log(*MANY)
    async with stage.client(route, *MANY, env=ENFORCE) as client:
        listed = names((await client.request("tools/list")).decoded()["tools"])
        assert "weather_get" not in listed
        found = await guess(client, "weather__get_forecast")
        assert "weather_get" in names(found["tools"])
        assert log.received("tools/call") == []


async def test_a_guess_with_a_server_s_prefix_reaches_none_and_other_names_of_a_tool_do(stage: Stage):
    first, second = ("--name", "first", "--tools", NAMES), ("--name", "second", "--tools", "echo,nonce")
    servers = {"first": stage.entry("stdio", *first), "second": stage.entry("stdio", *second)}
    env = {**ENFORCE, "RIGLM_NAMING": "on_collision"}
    log = stage.log(*first)
    route = Route("stdio", "many", RIGLM, HANDSHAKE)
    async with stage.client(route, upstream=stage.config("two", servers), env=env) as client:
        await client.request("tools/list")
        found = await guess(client, "first__weather_forecast")
        assert "weather_get" in names(found["tools"])
        assert log.received("tools/call") == []
        await client.request("tools/call", {"name": "call_tool", "arguments": {"name": "first__weather_get"}})
        assert len(log.received("tools/call")) == 1


@routes(CROSSED)
async def test_call_tool_passes_progress_and_questions(actors: Stage, route: Route):
    def answered(_: Message) -> bytes:
        return b'{"roots":[],"x":1.0}'

    async with actors.client(route, env=ENFORCE, answers={"roots/list": answered}) as client:
        slow = {"name": "call_tool", "arguments": {"name": "slow", "arguments": {"steps": 3}}}
        result = await client.request("tools/call", slow, meta={"progressToken": "mine"})
        assert result.words == "done"
        steps = [message for message in client.notifications if message.method == "notifications/progress"]
        assert [message.decoded("params")["progressToken"] for message in steps] == ["mine"] * 3
        question = {"method": "roots/list", "params": {}}
        params: dict[str, Any] = {"name": "call_tool", "arguments": {"name": "ask", "arguments": question}}
        answer = await client.request("tools/call", params)
        if route.era == MODERN:
            wanted = answer.decoded()
            assert wanted["resultType"] == "input_required"
            more = {
                "requestState": wanted["requestState"],
                "inputResponses": {key: {} for key in wanted["inputRequests"]},
            }
            answer = await client.request("tools/call", {**params, **more})
            assert answer.words == "{}"
        else:
            assert answer.words == '{"roots":[],"x":1.0}'


@routes(CROSSED)
async def test_a_cancelled_call_tool_is_cancelled_upstream(stage: Stage, route: Route):
    log = stage.log()
    async with stage.client(route, env=ENFORCE) as client:
        held = {"name": "call_tool", "arguments": {"name": "slow", "arguments": {"hold": True}}}
        exchange = await client.start("tools/call", held)
        await log.wait_for_event("holding")
        await exchange.cancel()
        await log.wait_for_event("cancelled")
        assert (await client.call("nonce", {"nonce": "next"})).words == "next"
