import asyncio

import pytest

from riglm.domain import protocol
from riglm.domain.jsonrpc import Raw
from riglm.domain.session import ProtocolEra
from tests.unit.adapters.upstream.actors import Answer, Ears, ask, notification, request, within
from tests.unit.adapters.upstream.web import WebServer, cut, reply, saying, visibility
from tests.unit.adapters.wire.peers import Caller
from tests.waiting import wait_until_async

META = {"_meta": {protocol.META_VERSION: "2026-07-28"}}
SCHEMA = Raw(b'{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}')


async def test_headers_repeat_the_body_with_what_the_schema_asks_for():
    seen: list[tuple[str, str]] = []

    def schema(upstream: str, tool: str) -> Raw:
        seen.append((upstream, tool))
        return SCHEMA

    server = WebServer()
    async with visibility(server, schema=schema) as upstream:
        link = upstream.stateless(Ears())
        params = {"name": "t\u00e9", "arguments": {"region": "eu"}, **META}
        await ask(link, 1, "tools/call", params).result()
        headers = server.requests[0].headers
        assert (headers["mcp-method"], headers["mcp-protocol-version"]) == ("tools/call", "2026-07-28")
        assert headers["mcp-param-region"] == "eu"
        assert headers["mcp-name"].startswith("=?base64?")
        assert seen == [("server", "t\u00e9")]
        assert "mcp-session-id" not in headers


@pytest.mark.parametrize(
    ("method", "params"),
    [("tools/list", META), ("tools/call", {"name": 5}), ("tools/call", {"name": "unknown"}), ("vendor/x", {})],
)
async def test_where_there_is_no_schema_or_no_envelope_the_rest_is_still_said(method, params):
    server = WebServer()
    async with visibility(server) as upstream:
        await ask(upstream.stateless(Ears()), 1, method, params).result()
        headers = server.requests[0].headers
        assert (headers["mcp-method"], headers["mcp-protocol-version"]) == (method, "2026-07-28")


async def test_a_clients_own_headers_win():
    server = WebServer()
    async with visibility(server) as upstream:
        answer = Answer(request(1, "tools/list", META), {b"mcp-method": b"tools/list", b"mcp-x": b"1"})
        upstream.stateless(Ears()).request(answer.message, answer)
        await answer.result()
        assert server.requests[0].headers["mcp-x"] == "1"


async def test_to_give_a_request_up_is_to_close_its_connection():
    server, left = WebServer(), asyncio.Event()

    async def wait(caller: Caller, message, asked):
        await caller.hang_up()
        left.set()

    server.handlers["tools/call"] = wait
    async with visibility(server) as upstream:
        link = upstream.stateless(Ears())
        answer = ask(link, 1, "tools/call", META)
        await wait_until_async(lambda: server.methods == ["tools/call"])
        link.cancel(answer, notification("notifications/cancelled", {"requestId": 1}))
        link.cancel(answer, None)
        await within(left.wait())
        assert (answer.over.is_set(), server.methods) == (False, ["tools/call"])


async def test_http_errors_with_a_json_body_are_answers():
    server = WebServer()
    server.handlers["vendor/x"] = saying(reply(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}', 404))
    async with visibility(server) as upstream:
        answer = ask(upstream.stateless(Ears()), 1, "vendor/x", META)
        assert (await answer.error())["code"] == -32601
        assert answer.status == 404


async def test_the_eras_are_forgotten_when_the_server_cannot_be_reached():
    server = WebServer()
    server.handlers["tools/call"] = cut
    async with visibility(server) as upstream:
        upstream.learned(ProtocolEra.MODERN, supported=True)
        await ask(upstream.stateless(Ears()), 1, "tools/call", META).words()
        assert upstream.supports(ProtocolEra.MODERN) is None
