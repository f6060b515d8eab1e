import shlex
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from riglm.domain.naming import MAX
from tests.interaction import text
from tests.interaction.clients.raw import HANDSHAKE, MODERN, RawClient
from tests.interaction.route import RIGLM, Route, routes
from tests.interaction.servers import catalog
from tests.interaction.stage import Stage
from tests.interaction.test_change_notifications import listening

BOTH_ERAS = [Route("stdio", "many", RIGLM, HANDSHAKE), Route("http", "many", RIGLM, MODERN)]
"""A handshake client on stdio, and a modern one over HTTP."""
LOGGED = "notifications/message"
SLOW_START = {"RIGLM_TIMEOUTS__INITIALIZE": "30", "RIGLM_TIMEOUTS__LIST": "2"}
QUICK = 5.0
"""Within how many seconds healthy servers must answer while others hang; their own deadline is 30 s."""

ALPHA = ("--name", "alpha")
BETA = ("--name", "beta")


def pair(stage: Stage, *more: str, backs: tuple[str, str] = ("stdio", "http")) -> dict[str, Any]:
    """Two healthy servers."""
    return {"alpha": stage.entry(backs[0], *ALPHA, *more), "beta": stage.entry(backs[1], *BETA, *more)}


async def everything(client: RawClient, method: str, member: str) -> list[dict[str, Any]]:
    """All entries of a list, page by page."""
    found: list[dict[str, Any]] = []
    params: dict[str, Any] = {}
    for _ in range(50):
        page = (await client.request(method, params, within=QUICK)).decoded()
        found += page[member]
        if "nextCursor" not in page:
            return found
        params = {"cursor": page["nextCursor"]}
    raise AssertionError("the cursors never end")


def names(entries: Sequence[dict[str, Any]]) -> list[str]:
    return [entry["name"] for entry in entries]


@routes(BOTH_ERAS)
async def test_tools_are_listed_by_server_and_routed(stage: Stage, route: Route):
    logs = {"alpha": stage.log(*ALPHA), "beta": stage.log(*BETA)}
    async with stage.client(route, upstream=stage.config("two", pair(stage))) as client:
        tools = names(await everything(client, "tools/list", "tools"))
        assert tools == [f"{server}__{name}" for server in logs for name in catalog.NAMES]
        for log in logs.values():
            log.mark()
        for server, log in logs.items():
            reply = await client.call(f"{server}__echo", b'{"n" : 1.0}')
            assert text.at_path(reply.result, "structuredContent") == b'{"n" : 1.0}'
            assert log.requests() == ["tools/call"]
            (call,) = log.received("tools/call")
            assert text.at_path(call.parts["params"], "name") == b'"echo"'
            assert text.at_path(call.parts["params"], "arguments") == b'{"n" : 1.0}'
        for unknown in ("echo", "gamma__echo", "alpha__no such tool", "ALPHA__echo"):
            assert "error" in (await client.call(unknown)).parts, unknown


@routes(BOTH_ERAS)
async def test_definitions_keep_everything_but_their_names(stage: Stage, route: Route):
    async with stage.client(route, upstream=stage.config("two", pair(stage))) as client:
        result = (await client.request("tools/list")).result
        listed = {text.value(text.at_path(tool, "name")): tool for tool in text.elements(text.at_path(result, "tools"))}
    for name in catalog.NAMES:
        theirs, ours = text.members(catalog.tool(name)), text.members(listed[f"alpha__{name}"])
        assert {**theirs, "name": b""} == {**ours, "name": b""}


@routes(BOTH_ERAS)
async def test_prompts_and_completion_are_routed(stage: Stage, route: Route):
    async with stage.client(route, upstream=stage.config("two", pair(stage))) as client:
        log = stage.log(*BETA)
        prompt = await client.request("prompts/get", {"name": "beta__greet", "arguments": {"topic": "t"}})
        said = prompt.decoded()["messages"][0]["content"]["text"]
        assert text.value(said.encode())["name"] == "greet"
        for ref in ({"type": "ref/prompt", "name": "beta__greet"}, {"type": "ref/resource", "uri": "note://beta/one"}):
            completion = await client.request(
                "completion/complete", {"ref": ref, "argument": {"name": "topic", "value": "a"}}
            )
            assert completion.decoded()["completion"]["total"] == 1, ref
        assert [method for method in log.requests() if not method.endswith("/list")] == [
            "prompts/get",
            "completion/complete",
            "completion/complete",
        ]


@routes(BOTH_ERAS[:1])
async def test_long_names_are_cut_and_still_routed(stage: Stage, route: Route):
    long = "a" * 40
    servers = {f"{letter}-{long}": stage.entry("stdio", "--tools", f"{'t' * 60}1,{'t' * 60}2") for letter in "xy"}
    async with stage.client(route, upstream=stage.config("long", servers)) as client:
        tools = names(await everything(client, "tools/list", "tools"))
        assert len(set(tools)) == 4
        assert max(map(len, tools)) == MAX
        assert tools == names(await everything(client, "tools/list", "tools"))
        for tool in tools:
            assert (await client.call(tool, {"n": tool})).decoded()["structuredContent"] == {"n": tool}


@routes(BOTH_ERAS)
async def test_hung_and_dead_servers_do_not_hide_the_others(stage: Stage, route: Route):
    servers = {
        "hung": stage.entry("stdio", "--hang-at", "initialize" if route.era == HANDSHAKE else "server/discover"),
        "dead": stage.entry("stdio", "--exit-at-start", "3"),
        "gone": {"type": "http", "url": "http://127.0.0.1:9/mcp"},
        **pair(stage),
        "sleepy": stage.entry("http", "--hang-at", "tools/list"),
    }
    async with stage.client(route, upstream=stage.config("mixed", servers), env=SLOW_START, greet=False) as client:
        greeting = await client.greet()
        if route.era == HANDSHAKE:
            assert "result" in greeting.parts
        else:  # who asks is sent to the handshake, since the server that hangs may be of that era
            assert greeting.decoded("error")["code"] == -32022
        tools = names(await everything(client, "tools/list", "tools"))
        assert [name for name in tools if name.startswith(("alpha__", "beta__"))] == [
            f"{server}__{name}" for server in ("alpha", "beta") for name in catalog.NAMES
        ]
        if route.era == HANDSHAKE:
            told = [note.decoded("params")["data"] for note in client.notifications if note.method == LOGGED]
            assert sorted(words.split("'")[1] for words in told) == ["dead", "gone", "hung", "sleepy"]
        for server in ("alpha", "beta"):
            assert (await client.call(f"{server}__nonce", {"nonce": server}, within=QUICK)).words == server
        for server in ("dead", "gone"):
            reply = await client.call(f"{server}__echo", within=QUICK)
            assert server in reply.decoded("error")["message"]


@routes(BOTH_ERAS)
async def test_a_server_that_fails_at_the_start_is_started_again_and_announced(stage: Stage, route: Route):
    servers = pair(stage)
    marker, alpha = stage.folder / "alpha may start", servers["alpha"]
    script = f"test -e {shlex.quote(str(marker))} && exec {shlex.join([alpha['command'], *alpha['args']])}; exit 1"
    servers["alpha"] = {"command": "sh", "args": ["-c", script]}
    async with stage.client(route, upstream=stage.config("again", servers)) as client:
        first = names(await everything(client, "tools/list", "tools"))
        assert first == [f"beta__{name}" for name in catalog.NAMES]
        if route.era == MODERN:
            await listening(client, {"toolsListChanged": True}, "tools")
        marker.touch()
        await client.wait_for("notifications/tools/list_changed")
        assert set(names(await everything(client, "tools/list", "tools"))) > set(first)
        assert (await client.call("alpha__nonce", {"nonce": "back"}, within=QUICK)).words == "back"


@routes(BOTH_ERAS)
async def test_a_server_that_crashes_leaves_the_others(stage: Stage, route: Route):
    servers = pair(stage, backs=("stdio", "stdio"))
    async with stage.client(route, upstream=stage.config("two", servers)) as client:
        reply = await client.call("alpha__die", within=QUICK)
        assert "alpha" in reply.decoded("error")["message"]
        assert (await client.call("beta__nonce", {"nonce": "alive"}, within=QUICK)).words == "alive"
        tools = names(await everything(client, "tools/list", "tools"))
        assert "beta__echo" in tools
        assert (await client.call("alpha__nonce", {"nonce": "again"})).words == "again"


@routes(BOTH_ERAS)
async def test_resources_are_listed_and_read_from_their_server(stage: Stage, route: Route):
    async with stage.client(route, upstream=stage.config("two", pair(stage))) as client:
        listed = await everything(client, "resources/list", "resources")
        assert len(listed) == 6
        for entry in listed:
            reply = await client.request("resources/read", {"uri": entry["uri"]})
            (content,) = reply.decoded()["contents"]
            assert content["uri"] == entry["uri"]
        said = {
            server: (await client.request("resources/read", {"uri": uri})).decoded()["contents"][0]["text"]
            for server in ("alpha", "beta")
            for uri in [entry["uri"] for entry in listed if f"{server}/two" in entry["uri"]]
        }
        assert said == {"alpha": "words of note://alpha/two", "beta": "words of note://beta/two"}
        templates = await everything(client, "resources/templates/list", "resourceTemplates")
        assert len(templates) == 2
        assert "error" in (await client.request("resources/read", {"uri": "note://no_client/one"})).parts


@routes(BOTH_ERAS, HANDSHAKE)
async def test_updates_of_a_resource_reach_its_subscriber(stage: Stage, route: Route):
    async with stage.client(route, upstream=stage.config("two", pair(stage))) as client:
        listed = await everything(client, "resources/list", "resources")
        (uri,) = (entry["uri"] for entry in listed if "beta/one" in entry["uri"])
        await client.request("resources/subscribe", {"uri": uri})
        await client.call("beta__change", {"what": "note://beta/one"})
        assert (await client.wait_for("notifications/resources/updated")).decoded("params") == {"uri": uri}


@routes(BOTH_ERAS)
async def test_progress_and_cancellation_work_with_several_servers(stage: Stage, route: Route):
    logs = {"alpha": stage.log(*ALPHA), "beta": stage.log(*BETA)}
    async with stage.client(route, upstream=stage.config("two", pair(stage))) as client:
        for server, log in logs.items():
            exchange = await client.start_call(
                f"{server}__slow", {"steps": 2, "hold": True, "marker": server}, meta={"progressToken": server}
            )
            await log.wait_for_event("holding")
            await client.wait_for("notifications/progress", lambda m: m.decoded("params")["progressToken"] == server, 2)  # noqa: B023
            await exchange.cancel()
            await log.wait_for_event("cancelled")
        assert [len(log.entries("cancelled")) for log in logs.values()] == [1, 1]


@routes(BOTH_ERAS, HANDSHAKE)
async def test_questions_and_log_levels_work_with_several_servers(stage: Stage, route: Route):
    async with stage.client(
        route, upstream=stage.config("two", pair(stage)), answers={"roots/list": lambda _: b'{"roots":[]}'}
    ) as client:
        await everything(client, "tools/list", "tools")
        assert "result" in (await client.request("logging/setLevel", {"level": "error"})).parts
        for number, server in enumerate(("alpha", "beta"), 1):
            assert (await client.call(f"{server}__ask", {"method": "roots/list"})).words == '{"roots":[]}'
            for level in ("info", "error"):
                await client.call(f"{server}__log", {"level": level})
            await client.wait_for("notifications/message", count=number)
        levels = [m.decoded("params")["level"] for m in client.notifications if m.method == "notifications/message"]
        assert levels == ["error", "error"]


@pytest.mark.parametrize("asks", ["initialize=ping,tools/list=roots/list", "initialize=roots/list,tools/list=ping"])
async def test_servers_may_ask_before_they_answer_the_handshake_or_a_list(stage: Stage, asks: str):
    servers = {"alpha": stage.entry("stdio", *ALPHA, "--ask-at", asks), "beta": stage.entry("stdio", *BETA)}
    answers = {"roots/list": lambda _: b'{"roots":[]}'}
    async with stage.client(BOTH_ERAS[0], upstream=stage.config("two", servers), answers=answers) as client:
        tools = names(await everything(client, "tools/list", "tools"))
        assert tools == [f"{server}__{name}" for server in servers for name in catalog.NAMES]
        assert "roots/list" in [message.method for message in client.asked]


@routes(BOTH_ERAS)
async def test_changes_of_any_server_are_announced_and_listed(stage: Stage, route: Route):
    async with stage.client(route, upstream=stage.config("two", pair(stage))) as client:
        await everything(client, "tools/list", "tools")
        if route.era == MODERN:
            await listening(client, {"toolsListChanged": True}, "all")
        for number, server in enumerate(("alpha", "beta"), 1):
            await client.call(f"{server}__change", {"what": "tools"})
            await client.wait_for("notifications/tools/list_changed", count=number)
            assert f"{server}__extra" in names(await everything(client, "tools/list", "tools"))


@routes(BOTH_ERAS, MODERN)
async def test_input_required_goes_back_to_the_server_that_asked(stage: Stage, route: Route):
    async with stage.client(route, upstream=stage.config("two", pair(stage))) as client:
        for server in ("alpha", "beta"):
            params = client.call_params(f"{server}__ask", {"method": "roots/list", "params": {}})
            asked = (await client.request("tools/call", params)).decoded()
            assert asked["resultType"] == "input_required"
            answers = {key: {"roots": []} for key in asked["inputRequests"]}
            more = text.dump({"inputResponses": answers, "requestState": asked["requestState"]})
            assert (await client.request("tools/call", text.merged(params, more))).words == '{"roots":[]}'


@routes(BOTH_ERAS)
async def test_one_handshake_server_makes_all_of_them_handshake(stage: Stage, route: Route):
    servers = {
        "old": stage.entry("stdio", "--name", "old", "--eras", "handshake"),
        "new": stage.entry("http", "--name", "new", "--eras", "modern"),
    }
    async with stage.client(route, upstream=stage.config("eras", servers), greet=False) as client:
        reply = await client.greet()
        if route.era == MODERN:
            assert reply.code == -32022
            return
        tools = names(await everything(client, "tools/list", "tools"))
        assert sorted(tools) == sorted(f"{server}__{name}" for server in servers for name in catalog.NAMES)
        for server in servers:
            assert (await client.call(f"{server}__nonce", {"nonce": server})).words == server


def test_equal_tool_names_without_prefixes_stop_the_start(stage: Stage):
    arguments = stage.config("two", pair(stage))
    ended = subprocess.run(
        stage.riglm("run", *arguments),
        env={**stage.env, "RIGLM_NAMING": "none"},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=20,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stdout == b""
    assert b"'echo' is a tool of 'alpha' and of 'beta'" in ended.stderr
