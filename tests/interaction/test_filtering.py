"""What a client is shown, and what it may not reach, through real pipes and sockets."""

import json

import pytest

from riglm.domain.naming import prefixed
from tests.interaction import text
from tests.interaction.clients.raw import HANDSHAKE, MODERN, RawClient
from tests.interaction.clients.stdio import StdioLink
from tests.interaction.clients.streamable import StreamableLink
from tests.interaction.route import CORNERS, CROSSED, MAIN, RIGLM, Route, routes
from tests.interaction.servers import catalog
from tests.interaction.stage import Stage, raw_post
from tests.interaction.test_lists import pages

DENY = {
    "RIGLM_FILTERING__MODE": "enforce",
    "RIGLM_FILTERING__COVERAGE": "0.9",
    "RIGLM_FILTERING__MIN_TOOLS": "50",
    "RIGLM_FILTERING__MAX_TOOLS": "50",
    "RIGLM_FILTERING__DENYLIST": "counter,*shout*",
    "RIGLM_FILTERING__META_TOOLS": '{"mark_tool": true, "index_status": true}',
    "RIGLM_FILTERING__PINNED": "search_available_tools,call_tool,set_context,mark_tool,index_status",
}
"""All tools but the denied ones are listed, and all meta-tools with them."""

FEW = {
    "RIGLM_FILTERING__MODE": "enforce",
    "RIGLM_FILTERING__COVERAGE": "0.9",
    "RIGLM_FILTERING__MIN_TOOLS": "5",
    "RIGLM_FILTERING__MAX_TOOLS": "5",
    "RIGLM_FILTERING__COLD_START_LIMIT": "5",
}
"""Five tools are listed, whatever was learned."""

ALLOW = {
    "RIGLM_FILTERING__MODE": "enforce",
    "RIGLM_FILTERING__STRATEGY": "allowlist",
    "RIGLM_FILTERING__ALLOWLIST": "echo,nonce",
}
SHADOW = {**FEW, "RIGLM_FILTERING__MODE": "shadow"}
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
    b'{"name":"c\xd0\xbeunter"}',
    b'{"name":"\\uff43ounter"}',
    b'{"name":"coun\\u200bter"}',
    b'{"name":"counter\\ud800"}',
    b'{"name":" _Counter-"}',
    b'{"name":["counter"]}',
    b'{"name":"echo","name":"counter"}',
    b'{"name":"counter","name":"echo"}',
    b'{"name":"call_tool","Name":"counter","arguments":{"name":"echo"}}',
    b'{"name":"call_tool","arguments":{"name":"echo","name":"counter"}}',
    b'{"name":"call_tool","arguments":{"name":"c\xd0\xbeunter"}}',
    b'{"name":"call_tool","arguments":{"name":"coun\\u200bter"}}',
    b'{"name":"mark_tool","arguments":{"name":"counter","relevant":true}}',
]


def names(result: bytes) -> list[str]:
    return [tool["name"] for tool in text.value(result)["tools"]]


FRONTS = [("stdio", HANDSHAKE), ("http", MODERN)]
"""Clients of both eras, where what is denied is a matter of several servers."""

OWN = {
    "search_available_tools": {"query": "counter"},
    "set_context": {"context": "call the counter"},
    "index_status": {},
}
"""riglm's own tools that say something of tools."""


async def refused(client: RawClient, params: bytes) -> bool:
    """Whether a call is refused, by the wire or in its result."""
    answer = await client.request("tools/call", params)
    if "error" in answer.parts:
        return answer.code in (-32600, -32602, -32020)
    return answer.decoded().get("isError") is True


@routes(MAIN + CROSSED)
async def test_a_denied_tool_is_neither_listed_nor_run_however_it_is_named(actors: Stage, route: Route):
    log = actors.log()
    async with actors.client(route, env=DENY) as client:
        for number, spelling in enumerate(SPELLINGS):
            if number == len(SPELLINGS) // 2:
                listed = names((await client.request("tools/list")).result)
                assert "counter" not in listed
                assert "echo" in listed
            log.mark()
            assert await refused(client, spelling), spelling
            assert log.received("tools/call") == [], spelling
        for own, given in OWN.items():
            told = await client.request("tools/call", {"name": own, "arguments": given})
            assert "result" in told.parts
            assert b'"counter"' not in told.raw.replace(b"\\", b""), own
        assert (await client.call("nonce", {"nonce": "still here"})).words == "still here"


def disguises(client: RawClient) -> list[bytes]:
    """Lines that a server might take for a call of `counter`, all with the id `wire`."""
    params = text.dump(client.enveloped(b'{"name":"counter","arguments":{}}'))
    harmless = text.dump(client.enveloped(b'{"name":"echo","arguments":{}}'))
    call, ping = text.request("wire", "tools/call", params), text.request("p", "ping", harmless)
    head = b'{"jsonrpc":"2.0","id":"wire",'
    return [
        call,
        b"\xef\xbb\xbf" + call,
        b"[" + call + b"]",
        b"[" + ping + b"," + call + b"]",
        call.replace(b',"method"', b'\r,"method"'),
        call.replace(b',"method"', b'\r\n,\n"method"'),
        ping + call,
        head + b'"method":"ping","method":"tools/call","params":' + params + b"}",
        head + b'"method":"tools/call","params":' + harmless + b',"params":' + params + b"}",
        head + b'"method":"tools/call","params":' + params + b',"params":' + harmless + b"}",
        head + b'"method":"ping","Method":"tools/call","params":' + params + b"}",
        head + b'"method":"tools/call","params":' + harmless + b',"Params":' + params + b"}",
        b'{"jsonrpc":"2.0","method":"notifications/x","Method":"tools/call","ID":"wire","params":' + params + b"}",
    ]


@routes(MAIN)
async def test_no_trick_of_the_wire_leads_to_a_denied_tool(actors: Stage, route: Route):
    log = actors.log()
    async with actors.client(route, env=DENY) as client:
        link = client.link
        log.mark()
        for line in disguises(client):
            if isinstance(link, StdioLink):
                await link.write(line + b"\n")
                await link.write(b"\xef\xbb\xbf" + line + b"\r\n")
            else:
                assert isinstance(link, StreamableLink)
                for name in ("counter", "echo"):
                    parts = {"method": b'"tools/call"', "params": text.dump(client.enveloped({"name": name}))}
                    headers = link._headers_for(parts)
                    for kind in ("application/json", "text/plain"):
                        status, _, body = await raw_post(link.url, line, {**headers, "content-type": kind})
                        assert status == 202 or b'"error"' in body, (line, status, body)
            assert (await client.call("nonce", {"nonce": "still here"})).words == "still here", line
            client.strays.clear()
        assert log.received("tools/call")
        assert [entry.raw for entry in log.received() if b"counter" in entry.raw] == []


TRICKS = ["bom", "batch", "carriage returns", "name twice", "name in another case"]
HTTP_TRICKS = [*TRICKS, "two data lines", "two messages", "plain text"]


@routes(MAIN)
async def test_no_form_of_a_list_shows_a_denied_tool(actors: Stage, route: Route):
    async with actors.client(route, env=DENY) as client:
        for kind in TRICKS if route.back == "stdio" else HTTP_TRICKS:
            for params in ({"trick": kind}, {"trick": kind, "cursor": "at/0"}):
                answer = await client.request("tools/list", params)
                assert "error" in answer.parts or "echo" in names(answer.result), kind
                assert (await client.call("nonce", {"nonce": "x"})).words == "x"
                said = [answer.raw, *client.strays, *(message.raw for message in client.notifications)]
                assert [raw for raw in said if b'"counter"' in raw] == [], kind
        assert await refused(client, b'{"name":"counter"}')
        client.strays.clear()


@routes(MAIN)
async def test_a_denied_tool_is_denied_in_shadow_mode_and_without_a_strategy(actors: Stage, route: Route):
    for more in ({"RIGLM_FILTERING__MODE": "shadow"}, {"RIGLM_FILTERING__STRATEGY": "none"}):
        async with actors.client(route, env={**DENY, **more}) as client:
            assert names((await client.request("tools/list")).result) == [n for n in catalog.NAMES if n != "counter"]
            assert await refused(client, b'{"name":"counter"}')
            assert (await client.call("nonce", {"nonce": "x"})).words == "x"


@routes(MAIN)
async def test_a_denied_tool_is_refused_like_one_that_does_not_exist(actors: Stage, route: Route):
    async with actors.client(route, env=DENY) as client:
        denied = await client.request("tools/call", {"name": "counter"})
        unknown = await client.request("tools/call", {"name": "nowhere"})
        assert denied.decoded("error") == {"code": -32602, "message": "Unknown tool: counter"}
        assert unknown.code == -32602
        assert unknown.decoded("error")["message"] == "Unknown tool: nowhere"


@routes(MAIN)
async def test_what_is_not_on_the_allowlist_is_denied(actors: Stage, route: Route):
    async with actors.client(route, env=ALLOW) as client:
        assert names((await client.request("tools/list")).result) == ["echo", "nonce"]
        assert (await client.call("nonce", {"nonce": "x"})).words == "x"
        for name in ("counter", "tool_00001", "Echo"):
            assert await refused(client, b'{"name":"%b","arguments":{}}' % name.encode()), name


@routes(MAIN)
async def test_no_page_of_a_list_shows_a_denied_tool(actors: Stage, route: Route):
    flags = ("--page-size", "4")
    async with actors.client(route, *flags, env=DENY) as client:
        whole = [name for page in await pages(client, "tools/list") for name in names(page)]
        assert "counter" not in whole
        assert set(catalog.NAMES) - {"counter"} <= set(whole)
        page = await client.request("tools/list", {"cursor": "at/4"})
        assert "counter" not in names(page.result)


@pytest.mark.parametrize(
    ("naming", "denied"),
    [("prefix", "alpha__counter"), ("on_collision", "counter"), ("on_collision", "alpha__counter")],
)
@pytest.mark.parametrize(("front", "era"), FRONTS)
async def test_no_server_s_prefix_leads_to_a_denied_tool(stage: Stage, front: str, era: str, naming: str, denied: str):
    alpha, beta = ("--name", "alpha", "--tools", "counter,nonce"), ("--name", "beta", "--tools", "echo")
    servers = {"alpha": stage.entry("stdio", *alpha), "beta": stage.entry("http", *beta)}
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


@pytest.mark.parametrize(("front", "era"), FRONTS)
async def test_a_name_that_was_cut_leads_to_no_denied_tool_even_before_it_was_listed(
    stage: Stage, front: str, era: str
):
    long, other = ("count_everything_there_is_" * 3 + end for end in ("denied", "open"))
    alpha, beta = ("--name", "alpha", "--tools", f"{long},{other}"), ("--name", "beta", "--tools", "echo")
    servers = {"alpha": stage.entry("stdio", *alpha), "beta": stage.entry("http", *beta)}
    env = {**DENY, "RIGLM_FILTERING__DENYLIST": long}
    log = stage.log(*alpha)
    async with stage.client(Route(front, "many", RIGLM, era), upstream=stage.config("two", servers), env=env) as client:
        denied = prefixed("alpha", long)
        for call in (
            {"name": denied},
            {"name": f"alpha__{long}"},
            {"name": "call_tool", "arguments": {"name": denied}},
        ):
            assert await refused(client, text.dump(call)), call
        assert log.received("tools/call") == []
        await client.request("tools/call", {"name": prefixed("alpha", other)})
        (reached,) = log.received("tools/call")
        assert text.value(text.at_path(reached.parts["params"], "name")) == other


@pytest.mark.parametrize(("front", "era"), FRONTS)
async def test_an_error_names_no_denied_tool(stage: Stage, front: str, era: str):
    flags = {name: ("--name", name, "--tools", "counter,echo") for name in ("alpha", "beta")}
    servers = {name: stage.entry("stdio", *more) for name, more in flags.items()}
    env = {**DENY, "RIGLM_FILTERING__DENYLIST": "alpha__counter"}
    async with stage.client(Route(front, "many", RIGLM, era), upstream=stage.config("two", servers), env=env) as client:
        said = [(await client.request("tools/call", {"name": name})).decoded("error") for name in ("counter", "echo")]
    assert [error["message"] for error in said] == [
        "Unknown tool: counter; use beta__counter",
        "Unknown tool: echo; use alpha__echo or beta__echo",
    ]


@routes(MAIN)
async def test_shadow_mode_is_byte_for_byte_what_no_filter_is(actors: Stage, route: Route):
    said = []
    for env in (SHADOW, OFF):
        async with actors.client(route, "--page-size", "5", "--many-tools", "20", env=env) as client:
            assert client.greeting is not None
            lists = await pages(client, "tools/list")
            odd = await client.request("tools/list", {"cursor": "no such cursor"})
            own = await client.request("tools/call", {"name": "search_available_tools", "arguments": {"query": "x"}})
            said.append([client.greeting.result, *lists, odd.error, own.error])
    assert said[0] == said[1]
    assert len(said[0]) > 8


@routes(MAIN)
async def test_a_small_catalogue_passes_as_it_came(stage: Stage, route: Route):
    """On every surface, as long as hiding tools does not pay; a list that may change is private and soon stale."""
    said = []
    for env in ({"RIGLM_FILTERING__MODE": "enforce"}, OFF):
        async with stage.client(route, "--page-size", "5", env=env) as client:
            said.append(await pages(client, "tools/list"))
    if route.era == MODERN:
        entries = [[raw for page in every for raw in text.elements(text.members(page)["tools"])] for every in said]
        assert entries[0] == entries[1]
        fields = text.members(said[0][0])
        assert (fields["cacheScope"], int(fields["ttlMs"]) <= 2_000) == (b'"private"', True)
    else:
        assert said[0] == said[1]


@routes(MAIN)
async def test_a_filtered_list_is_one_page_in_the_server_s_envelope(actors: Stage, route: Route):
    async with actors.client(route, "--page-size", "4", env=DENY) as client:
        result = (await client.request("tools/list")).result
        fields = text.members(result)
        assert fields["vendor/list"] == b"1.50"
        assert "nextCursor" not in fields
        if route.era == MODERN:
            assert (fields["cacheScope"], fields["ttlMs"]) == (b'"private"', b"0")
            assert fields["resultType"] == b'"complete"'
        shown = {json.loads(raw)["name"]: raw for raw in text.elements(fields["tools"])}
        for name in set(catalog.NAMES) - {"counter"}:
            assert shown[name] == catalog.tool(name)


@routes(CORNERS[:1])
async def test_what_was_refused_is_recorded_as_failed(stage: Stage, route: Route):
    async with stage.client(route, env=DENY) as client:
        await client.request("tools/call", {"name": "counter"})
        await client.call("nonce", {"nonce": "x"})
    with stage.store() as store:
        [session] = store.list_sessions()
        calls = [(call.tool, call.success) for call in store.list_invocations(session.session.id)]
    assert calls == [("counter", False), ("nonce", True)]
