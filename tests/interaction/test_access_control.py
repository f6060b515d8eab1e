import pytest

from tests.interaction import text
from tests.interaction.clients import http
from tests.interaction.clients.raw import HANDSHAKE, MODERN, RawClient
from tests.interaction.log import ServerLog
from tests.interaction.route import EVERY, RIGLM, Route, routes
from tests.interaction.stage import Stage, raw_post

CREDENTIALS = {
    "authorization": "Bearer client-secret-1",
    "cookie": "session=client-secret-2",
    "proxy-authorization": "Basic client-secret-3",
    "x-api-key": "client-secret-4",
    "x-auth-token": "client-secret-5",
    "api-key": "client-secret-6",
    "x-forwarded-access-token": "client-secret-7",
    "x-amz-security-token": "client-secret-8",
}
TOKEN = "the-downstream-token"
INITIALIZE = text.request(1, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}})
DISCOVER = {"mcp-protocol-version": "2026-07-28", "mcp-method": "server/discover"}


@routes([route for route in EVERY if route.front != "stdio" and route.back != "stdio"])
async def test_a_client_s_credentials_reach_no_upstream(actors: Stage, route: Route):
    log = actors.log()
    async with actors.client(route, headers=CREDENTIALS) as client:
        await client.call("echo")
    seen = [name for entry in log.received() for name, content in entry.headers.items() if "client-secret" in content]
    assert log.received("tools/call")
    assert seen == []


@routes([route for route in EVERY if route.back != "stdio"])
async def test_the_configured_bearer_reaches_the_upstream(stage: Stage, route: Route):
    flags = ("--bearer", "upstream-secret")
    entry = stage.entry(route.back, *flags) | {
        "headers": {"Authorization": "Bearer ${UPSTREAM_TOKEN}", "X-Vendor": "v"}
    }
    log = stage.log(*flags)
    upstream = stage.config("guarded", {"guarded": entry})
    headers = CREDENTIALS if route.front != "stdio" else None
    async with stage.client(
        route, upstream=upstream, env={"UPSTREAM_TOKEN": "upstream-secret"}, headers=headers
    ) as client:
        assert (await client.call("nonce", {"nonce": "in"})).words == "in"
    (call,) = log.received("tools/call")
    assert call.headers["authorization"] == "Bearer upstream-secret"
    assert call.headers["x-vendor"] == "v"


@routes([route for route in EVERY if route.back == "http"])
async def test_an_upstream_that_wants_a_token_is_an_error_that_says_so(stage: Stage, route: Route):
    upstream = stage.config("guarded", {"guarded": stage.entry("http", "--bearer", "upstream-secret")})
    async with stage.client(route, upstream=upstream, greet=False) as client:
        reply = await client.greet()
        message = reply.decoded("error")["message"]
        assert "guarded" in message
        assert "401" in message


async def _served(stage: Stage, *arguments: str, **env: str) -> tuple[str, ServerLog]:
    log = stage.log()
    return stage.serve(*arguments, *stage.back("http"), env=env), log


@pytest.mark.parametrize(
    ("header", "content"),
    [
        ("host", "evil.example"),
        ("host", "evil.example:{port}"),
        ("host", "127.0.0.1.evil.example:{port}"),
        ("host", "localhost.evil.example"),
        ("origin", "http://evil.example"),
        ("origin", "https://localhost.evil.example"),
        ("origin", "null"),
        ("origin", "file://"),
    ],
)
async def test_forged_host_and_origin_are_refused(actors: Stage, header: str, content: str):
    origin, log = await _served(actors)
    forged = {header: content.format(port=origin.rpartition(":")[2]), "mcp-session-id": "x"}
    refused = 421 if header == "host" else 403
    for path in ("/mcp", "/sse", "/messages", "/"):
        assert (await raw_post(origin + path, INITIALIZE, forged))[0] == refused
        for method in ("GET", "DELETE", "OPTIONS"):
            response = await http.send(method, origin + path, {"accept": "text/event-stream", **forged})
            await response.close()
            assert response.status == refused, (method, path)
    assert log.received() == []


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}", "LOCALHOST:{port}"])
async def test_names_of_loopback_are_served(actors: Stage, host: str):
    origin, _ = await _served(actors)
    name = host.format(port=origin.rpartition(":")[2])
    status, headers, _ = await raw_post(origin + "/mcp", INITIALIZE, {"host": name, "origin": f"http://{name}"})
    assert status == 200
    response = await http.send("DELETE", origin + "/mcp", {"mcp-session-id": headers["mcp-session-id"]})
    await response.close()


async def test_hosts_and_origins_can_be_allowed(stage: Stage):
    env = {
        "RIGLM_DOWNSTREAM__ALLOWED_HOSTS": '["mcp.example"]',
        "RIGLM_DOWNSTREAM__ALLOWED_ORIGINS": '["https://app.example"]',
    }
    origin, _ = await _served(stage, **env)
    allowed = {"host": "mcp.example", "origin": "https://app.example"}
    assert (await raw_post(origin + "/mcp", INITIALIZE, allowed))[0] == 200
    assert (await raw_post(origin + "/mcp", INITIALIZE, {"host": "other.example"}))[0] == 421


def test_riglm_listens_on_loopback_alone(actors: Stage):
    origin = actors.serve(*actors.back("http"))
    port = int(origin.rpartition(":")[2])
    assert actors.served_by(origin).listening_on(port) <= {"127.0.0.1", "::1"}


@routes(
    [
        Route("http", "http", RIGLM, HANDSHAKE),
        Route("http", "http", RIGLM, MODERN),
        Route("sse", "http", RIGLM, HANDSHAKE),
    ]
)
async def test_nobody_comes_in_without_the_token(stage: Stage, route: Route):
    log = stage.log()
    told, env = stage.back("http"), {"RIGLM_DOWNSTREAM__TOKEN": TOKEN}
    origin = stage.serve(*told, env=env)
    for wrong in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {TOKEN}"}, {"authorization": TOKEN}):
        for path in ("/mcp", "/messages?session_id=x"):
            status, headers, _ = await raw_post(origin + path, INITIALIZE, wrong)
            assert status == 401
            assert headers["www-authenticate"].startswith("Bearer")
        response = await http.send("GET", origin + "/sse", wrong)
        await response.close()
        assert response.status == 401
    assert log.received() == []
    right = {"authorization": f"Bearer {TOKEN}"}
    async with stage.client(route, upstream=told, env=env, headers=right) as client:
        assert (await client.call("nonce", {"nonce": "in"})).words == "in"
    assert all(TOKEN not in str(entry.headers) for entry in log.received())


async def test_an_unknown_session_is_answered_with_404(actors: Stage):
    origin, log = await _served(actors)
    call = text.request(1, "tools/list")
    assert (await raw_post(origin + "/mcp", call, {"mcp-session-id": "guessed"}))[0] == 404
    for method in ("GET", "DELETE"):
        response = await http.send(
            method, origin + "/mcp", {"mcp-session-id": "guessed", "accept": "text/event-stream"}
        )
        await response.close()
        assert response.status == 404, method
    assert (await raw_post(origin + "/mcp", call))[0] in (400, 404)
    assert log.received("tools/list") == []


async def test_a_session_is_unknown_to_everybody_but_its_own_principal(actors: Stage):
    env = {"RIGLM_DOWNSTREAM__TOKENS": '{"alice": "the-token-of-alice", "bob": "the-token-of-bob"}'}
    alice, bob = ({"authorization": f"Bearer the-token-of-{name}"} for name in ("alice", "bob"))
    route = Route("http", "http", RIGLM, HANDSHAKE)
    async with actors.client(route, headers=alice, env=env) as client:
        assert client.link.session_id
        stolen = {"mcp-session-id": client.link.session_id}
        listed = len(actors.log().received("tools/list"))
        assert (await raw_post(client.link.url, text.request(1, "tools/list"), bob | stolen))[0] == 404
        assert (await raw_post(client.link.url, text.request(1, "tools/list"), stolen))[0] == 401
        for method in ("GET", "DELETE"):
            response = await http.send(method, client.link.url, {**bob, **stolen, "accept": "text/event-stream"})
            await response.close()
            assert response.status == 404, method
        assert len(actors.log().received("tools/list")) == listed
        assert (await client.call("nonce", {"nonce": "still here"})).words == "still here"


@routes([Route("http", "http", RIGLM, HANDSHAKE), Route("http", "stdio", RIGLM, HANDSHAKE)])
async def test_a_session_that_was_ended_is_unknown(actors: Stage, route: Route):
    async with actors.client(route) as client:
        link = client.link
        ended = link.session_id
        assert ended
        assert len(ended) >= 22
    status, _, _ = await raw_post(link.url, text.request(1, "tools/list"), {"mcp-session-id": ended})
    assert status == 404


async def test_no_session_is_made_of_an_upstream_s_id(actors: Stage):
    log = actors.log()
    route = Route("http", "http", RIGLM, HANDSHAKE)
    async with actors.client(route) as client:
        await client.call("echo")
        (call,) = log.received("tools/call")
        assert call.headers["mcp-session-id"] != client.link.session_id


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH"])
async def test_other_http_methods_without_a_session_are_refused(actors: Stage, method: str):
    origin, _ = await _served(actors)
    response = await http.send(method, origin + "/mcp", {**DISCOVER, "accept": "text/event-stream"})
    await response.close()
    assert response.status in (400, 404, 405)


async def test_modern_requests_are_handed_no_session(actors: Stage):
    origin, _ = await _served(actors)
    speaker = RawClient(actors.link(Route("http", "http", RIGLM, MODERN)), MODERN)
    body = text.request(1, "server/discover", speaker.enveloped({}))
    status, headers, _ = await raw_post(origin + "/mcp", body, DISCOVER)
    assert status == 200
    assert "mcp-session-id" not in headers
