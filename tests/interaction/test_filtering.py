"""What a client is shown, and what it may not reach, through real pipes and sockets."""

import json
from typing import Any

import pytest

from tests.interaction import text
from tests.interaction.clients.raw import HANDSHAKE, MODERN, RawClient
from tests.interaction.manifest import behaviour
from tests.interaction.route import EVERY, MAIN, OLD, RIGLM, Route, routes
from tests.interaction.servers import catalogue
from tests.interaction.stage import Stage
from tests.interaction.test_lists import pages

DENY = {
    "RIGLM_FILTERING__MODE": "enforce",
    "RIGLM_FILTERING__DENYLIST": "counter,*shout*",
    "RIGLM_FILTERING__PASSTHROUGH_BELOW__TOOLS": "0",
    "RIGLM_FILTERING__MIN_TOOLS": "50",
    "RIGLM_FILTERING__MAX_TOOLS": "50",
}
ALLOW = {
    "RIGLM_FILTERING__MODE": "enforce",
    "RIGLM_FILTERING__STRATEGY": "allowlist",
    "RIGLM_FILTERING__ALLOWLIST": "echo,nonce",
}
SHADOW = {"RIGLM_FILTERING__MODE": "shadow", "RIGLM_FILTERING__PASSTHROUGH_BELOW__TOOLS": "0"}
OFF = {"RIGLM_FILTERING__ENABLED": "false"}
SPELLINGS = [
    b'{"name":"counter","arguments":{}}',
    b'{"name":"Counter"}',
    b'{"name":"COUNTER"}',
    b'{"n\\u0061me":"c\\u006funter"}',
    b'{"name":"echo","Name":"counter"}',
    b'{"name":"call_tool","arguments":{"name":"counter","arguments":{}}}',
    b'{"name":"call_tool","arguments":{"name":"COUNTER"}}',
    b'{"name":"call_tool","arguments":{"name":"call_tool","arguments":{"name":"counter"}}}',
]


def names(result: bytes) -> list[str]:
    return [tool["name"] for tool in text.value(result)["tools"]]


async def refused(client: RawClient, params: bytes) -> bool:
    """Whether a call is refused, by the wire or in its result."""
    answer = await client.request("tools/call", params)
    if "error" in answer.parts:
        return answer.code in (-32602, -32020)
    return answer.decoded().get("isError") is True


@behaviour("filter.denied")
@routes(MAIN + [route for route in OLD if route.front == "sse"], through=RIGLM)
async def test_a_denied_tool_is_neither_listed_nor_run_however_it_is_named(company: Stage, route: Route):
    log = company.log()
    async with company.client(route, env=DENY) as client:
        for number, spelling in enumerate(SPELLINGS):
            if number == len(SPELLINGS) // 2:
                listed = names((await client.request("tools/list")).result)
                assert "counter" not in listed
                assert "echo" in listed
            log.mark()
            assert await refused(client, spelling), spelling
            assert [entry for entry in log.received("tools/call") if b"ounter" in entry.raw] == []
        found = await client.request(
            "tools/call", {"name": "search_available_tools", "arguments": {"query": "counter"}}
        )
        assert b'"counter"' not in found.raw.replace(b"\\", b"")
        assert (await client.call("nonce", {"nonce": "still here"})).words == "still here"


@behaviour("filter.denied")
@routes(MAIN, through=RIGLM)
async def test_a_denied_tool_is_refused_like_one_that_does_not_exist(company: Stage, route: Route):
    async with company.client(route, env=DENY) as client:
        denied = await client.request("tools/call", {"name": "counter"})
        unknown = await client.request("tools/call", {"name": "nowhere"})
        assert denied.decoded("error") == {"code": -32602, "message": "Unknown tool: counter"}
        assert unknown.code == -32602
        assert unknown.decoded("error")["message"] == "Unknown tool: nowhere"


@behaviour("filter.denied")
@routes(MAIN, through=RIGLM)
async def test_what_is_not_on_the_allowlist_is_denied(company: Stage, route: Route):
    async with company.client(route, env=ALLOW) as client:
        assert names((await client.request("tools/list")).result) == ["echo", "nonce"]
        assert (await client.call("nonce", {"nonce": "x"})).words == "x"
        for name in ("counter", "tool_00001", "Echo"):
            assert await refused(client, b'{"name":"%b","arguments":{}}' % name.encode()), name


@behaviour("filter.denied")
@routes(MAIN, through=RIGLM)
async def test_no_page_of_a_list_shows_a_denied_tool(company: Stage, route: Route):
    flags = ("--page-size", "4")
    async with company.client(route, *flags, env=DENY) as client:
        whole = [name for page in await pages(client, "tools/list") for name in names(page)]
        assert "counter" not in whole
        assert set(catalogue.NAMES) - {"counter"} <= set(whole)
        page = await client.request("tools/list", {"cursor": "at/4"})
        assert "counter" not in names(page.result)


@behaviour("filter.denied")
@pytest.mark.parametrize("naming", ["prefix", "on_collision"])
@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
@pytest.mark.parametrize("front", ["stdio", "http"])
async def test_no_server_s_prefix_leads_to_a_denied_tool(stage: Stage, front: str, era: str, naming: str):
    alpha, beta = ("--name", "alpha", "--tools", "counter,nonce"), ("--name", "beta", "--tools", "echo")
    servers = {"alpha": stage.entry("stdio", *alpha), "beta": stage.entry("http", *beta)}
    denied = "alpha__counter" if naming == "prefix" else "counter"
    env = {**DENY, "RIGLM_FILTERING__DENYLIST": denied, "RIGLM_NAMING": naming}
    route = Route(front, "many", RIGLM, era)
    log = stage.log(*alpha)
    async with stage.client(route, upstream=stage.config("two", servers), env=env) as client:
        for listed in (False, True):
            for spelling in ("alpha__counter", "counter", "ALPHA__counter", "alpha__Counter"):
                assert await refused(client, b'{"name":"%b","arguments":{}}' % spelling.encode()), (listed, spelling)
                through = b'{"name":"call_tool","arguments":{"name":"%b"}}' % spelling.encode()
                assert await refused(client, through), (listed, spelling)
            shown = names((await client.request("tools/list")).result)
            assert [name for name in shown if "counter" in name.lower()] == []
    assert log.received()
    assert log.received("tools/call") == []


@behaviour("filter.transparent")
@routes(EVERY, through=RIGLM)
async def test_shadow_mode_is_byte_for_byte_what_no_filter_is(company: Stage, route: Route):
    said = []
    for env in (SHADOW, OFF):
        async with company.client(route, "--page-size", "5", "--many-tools", "20", env=env) as client:
            assert client.greeting is not None
            lists = await pages(client, "tools/list")
            odd = await client.request("tools/list", {"cursor": "no such cursor"})
            own = await client.request("tools/call", {"name": "search_available_tools", "arguments": {"query": "x"}})
            said.append([client.greeting.result, *lists, odd.error, own.error])
    assert said[0] == said[1]
    assert len(said[0]) > 8


@behaviour("filter.transparent")
@routes(MAIN, through=RIGLM)
async def test_a_small_catalogue_passes_as_it_came(company: Stage, route: Route):
    said = []
    for env in ({"RIGLM_FILTERING__MODE": "enforce"}, OFF):
        async with company.client(route, "--page-size", "5", env=env) as client:
            said.append(await pages(client, "tools/list"))
            assert (await client.request("tools/call", {"name": "call_tool", "arguments": {"name": "echo"}})).code
    assert said[0] == said[1]


@behaviour("filter.envelope")
@routes(MAIN, through=RIGLM)
async def test_a_filtered_list_is_one_page_in_the_server_s_envelope(company: Stage, route: Route):
    async with company.client(route, "--page-size", "4", env=DENY) as client:
        result = (await client.request("tools/list")).result
        fields = text.members(result)
        assert fields["vendor/list"] == b"1.50"
        assert "nextCursor" not in fields
        if route.era == MODERN:
            assert (fields["cacheScope"], fields["ttlMs"]) == (b'"private"', b"0")
            assert fields["resultType"] == b'"complete"'
        shown = {json.loads(raw)["name"]: raw for raw in text.elements(fields["tools"])}
        for name in set(catalogue.NAMES) - {"counter"}:
            assert shown[name] == catalogue.tool(name)


@behaviour("filter.stable")
@routes(MAIN, MODERN, RIGLM)
async def test_a_modern_client_s_list_is_byte_for_byte_the_same_whatever_it_calls(company: Stage, route: Route):
    env = {"RIGLM_FILTERING__MODE": "enforce"}
    async with company.client(route, "--many-tools", "30", env=env) as client:
        first = (await client.request("tools/list")).result
        assert b'"search_available_tools"' in first
        for number in range(30):
            await client.call(f"tool_{number:05}", {})
            await client.request(
                "tools/call", {"name": "set_context", "arguments": {"context": f"step {number} of the work"}}
            )
            assert (await client.request("tools/list")).result == first


@behaviour("filter.recorded")
@routes([route for route in MAIN if route.front == "stdio"], through=RIGLM)
async def test_what_was_refused_is_recorded_as_failed(stage: Stage, route: Route):
    async with stage.client(route, env=DENY) as client:
        await client.request("tools/call", {"name": "counter"})
        await client.call("nonce", {"nonce": "x"})
    with stage.store() as store:
        found: dict[str, Any] = {one.tool: one for one in store.tool_statistics()}
    assert (found["counter"].invocations, found["counter"].failures) == (1, 1)
    assert (found["nonce"].invocations, found["nonce"].failures) == (1, 0)
