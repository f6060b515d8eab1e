import pytest

from tests.interaction import text
from tests.interaction.clients.raw import HANDSHAKE, MODERN, RawClient
from tests.interaction.route import CORNERS, CROSSED, HTTP_FRONT, MAIN, Route, routes
from tests.interaction.servers import catalog
from tests.interaction.servers.conversation import HANDSHAKE_VERSIONS, MODERN_VERSION
from tests.interaction.stage import Stage, raw_post
from tests.waiting import wait_until_async

UNSUPPORTED = -32022


@routes(CROSSED)
async def test_the_upstream_is_spoken_to_in_the_client_s_era(stage: Stage, route: Route):
    log = stage.log()
    async with stage.client(route) as client:
        await client.call("echo")
    (call,) = log.received("tools/call")
    meta = text.value(text.members(call.parts["params"]).get("_meta", b"{}"))
    assert ("io.modelcontextprotocol/protocolVersion" in meta) == (route.era == MODERN)
    if route.era == MODERN:
        assert log.received("notifications/initialized") == []
    if route.back == "http":
        assert call.headers["mcp-protocol-version"] == client.version
        assert ("mcp-session-id" in call.headers) == (route.era == HANDSHAKE)


@routes(MAIN, MODERN)
async def test_a_modern_request_to_a_handshake_upstream_names_the_versions(stage: Stage, route: Route):
    async with stage.client(route, "--eras", "handshake", greet=False) as client:
        for method in ("server/discover", "tools/list"):
            reply = await client.request(method, within=40)
            assert reply.code == UNSUPPORTED
            data = reply.decoded("error")["data"]
            assert data["requested"] == MODERN_VERSION
            assert data["supported"]
            assert set(data["supported"]) <= set(HANDSHAKE_VERSIONS)


@routes(CROSSED[:1])
async def test_a_client_that_was_refused_can_initialize_on_the_same_pipe(stage: Stage, route: Route):
    async with stage.client(route, "--eras", "handshake", greet=False) as client:
        modern = RawClient(client.link, MODERN)
        probe = await client.request("server/discover", modern.enveloped(None), within=40)
        assert probe.code == UNSUPPORTED
        await client.greet()
        assert (await client.call("nonce", {"nonce": "fallen back"})).words == "fallen back"


async def test_a_modern_client_is_served_once_a_slow_server_has_started(stage: Stage):
    slow = ("sh", "-c", 'sleep 2; exec "$@"', "sh", *stage.scripted())
    link = stage.pipe(stage.riglm("run", "--", *slow), {"RIGLM_TIMEOUTS__INITIALIZE": "0.5"})
    async with RawClient(link, MODERN) as client:
        refused = await client.request("tools/list", within=40)
        assert refused.code == UNSUPPORTED
        assert "has not answered yet" in refused.decoded("error")["message"]
        await stage.log().wait_for_event("started")

        async def is_served() -> bool:
            return "error" not in (await client.request("tools/list")).parts

        await wait_until_async(is_served)
        assert (await client.call("echo")).result


@routes(MAIN, MODERN)
async def test_an_unknown_modern_version_is_answered_as_by_the_server(stage: Stage, route: Route):
    async with stage.client(route, greet=False, version="2099-01-01") as client:
        reply = await client.request("tools/list", within=40)
        assert reply.code == UNSUPPORTED
        assert MODERN_VERSION in reply.decoded("error")["data"]["supported"]


@routes(CROSSED, HANDSHAKE)
async def test_a_handshake_client_works_with_a_modern_upstream(stage: Stage, route: Route):
    if route.back == "sse":
        route = Route(route.front, "http", route.through, route.era)
    flags = ("--eras", "modern")
    log = stage.log(*flags)
    async with stage.client(route, *flags) as client:
        assert client.greeting
        greeting = client.greeting.decoded()
        assert greeting["protocolVersion"] == "2025-11-25"
        assert greeting["serverInfo"]["name"] == "scripted"
        assert greeting["capabilities"]["tools"] == {"listChanged": True}
        assert greeting["instructions"] == "Do as told" if "instructions" in greeting else True
        tools = text.elements(text.at_path((await client.request("tools/list")).result, "tools"))
        assert tools == [catalog.tool(name) for name in catalog.NAMES]
        reply = await client.call("echo", b'{"n" : 1.0}')
        assert text.at_path(reply.result, "structuredContent") == b'{"n" : 1.0}'
        assert (await client.request("ping")).decoded() == {}
        assert (await client.call("fail", {"code": -31999, "message": "no"})).code == -31999
    (call,) = log.received("tools/call")[:1]
    assert (
        text.value(text.at_path(call.parts["params"], "_meta"))["io.modelcontextprotocol/protocolVersion"]
        == MODERN_VERSION
    )


@routes(CORNERS, HANDSHAKE)
async def test_progress_and_cancellation_are_translated_too(stage: Stage, route: Route):
    flags = ("--eras", "modern")
    log = stage.log(*flags)
    async with stage.client(route, *flags) as client:
        await client.call("slow", {"steps": 2}, meta={"progressToken": "t"})
        told = [m.decoded("params") for m in client.notifications if m.method == "notifications/progress"]
        assert [(params["progressToken"], params["progress"]) for params in told] == [("t", 1.0), ("t", 2.0)]
        exchange = await client.start_call("slow", {"hold": True, "marker": "m"})
        await log.wait_for_event("holding")
        await exchange.cancel()
        await log.wait_for_event("cancelled")


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
@routes(MAIN + CROSSED[-1:], HANDSHAKE)
async def test_every_handshake_revision_is_negotiated(actors: Stage, route: Route, version: str):
    log = actors.log()
    async with actors.client(route, version=version) as client:
        assert client.greeting
        assert client.greeting.decoded()["protocolVersion"] == version
        assert (await client.call("nonce", {"nonce": version})).words == version
    (opening,) = log.received("initialize")
    assert text.value(text.at_path(opening.parts["params"], "protocolVersion")) == version


@routes(HTTP_FRONT, MODERN)
async def test_headers_that_contradict_the_body_are_refused(actors: Stage, route: Route):
    origin = actors.link(route).url
    speaker = RawClient(actors.link(route), MODERN)
    body = text.request(1, "tools/call", speaker.enveloped(speaker.call_params("echo")))
    right = {"mcp-protocol-version": MODERN_VERSION, "mcp-method": "tools/call", "mcp-name": "echo"}
    assert (await raw_post(origin, body, right))[0] == 200
    for wrong in ({"mcp-method": "tools/list"}, {"mcp-name": "die"}, {"mcp-protocol-version": "2025-11-25"}):
        log = actors.log()
        status, _, answer = await raw_post(origin, body, right | wrong)
        assert (status, text.value(text.at_path(answer, "error", "code"))) == (400, -32020), wrong
        assert log.received("tools/call") == []
