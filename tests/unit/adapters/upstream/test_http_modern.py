import asyncio

import pytest

from riglm.adapters.mcp.upstream.http_link import HttpLink
from riglm.domain import protocol
from riglm.domain.jsonrpc import Raw
from riglm.domain.session import ProtocolEra
from tests.unit.adapters.upstream import web
from tests.unit.adapters.upstream.actors import Answer, Ears, Rest, ask, notification, request, within
from tests.unit.adapters.upstream.web import WebServer, cut, hold, reply, saying, streaming, visibility
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


async def test_notifications_are_posted():
    server = WebServer()
    async with visibility(server) as upstream:
        upstream.stateless(Ears()).send(notification("notifications/vendor"))
        await wait_until_async(lambda: server.methods == ["notifications/vendor"])
        assert server.requests[0].headers["mcp-method"] == "notifications/vendor"


async def test_http_errors_with_a_json_body_are_answers():
    server = WebServer()
    server.handlers["vendor/x"] = saying(reply(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}', 404))
    async with visibility(server) as upstream:
        answer = ask(upstream.stateless(Ears()), 1, "vendor/x", META)
        assert (await answer.error())["code"] == -32601
        assert answer.status == 404


async def test_a_broken_stream_is_lost_even_if_it_named_a_place():
    server = WebServer()
    server.handlers["tools/call"] = streaming(web.event(b"", "7", 1))
    async with visibility(server) as upstream:
        answer = ask(upstream.stateless(Ears()), 1, "tools/call", META)
        assert "closed the stream before its answer" in await answer.words()


async def test_it_does_not_listen_and_has_no_place_to_resume():
    server, rest = WebServer(), Rest()
    async with visibility(server) as upstream:
        link = upstream.stateless(Ears())
        assert link is upstream.stateless(Ears())
        link.listen(listening=True)
        link.resume(b"7", rest)
        assert rest.over.is_set()
        assert (server.served.callers, link.resumable) == (0, False)


async def test_the_eras_are_forgotten_when_the_server_cannot_be_reached():
    server = WebServer()
    server.handlers["tools/call"] = cut
    async with visibility(server) as upstream:
        upstream.learned(ProtocolEra.MODERN, supported=True)
        await ask(upstream.stateless(Ears()), 1, "tools/call", META).words()
        assert upstream.supports(ProtocolEra.MODERN) is None


async def test_closing_the_upstream_ends_what_is_in_flight_on_every_link():
    server = WebServer()
    server.handlers["tools/call"] = hold
    async with visibility(server) as upstream:
        links: list[HttpLink] = [upstream.stateless(Ears()), upstream.connect(Ears())]  # type: ignore[list-item]
        answers = [ask(link, 1, "tools/call", META) for link in links]
        await wait_until_async(lambda: len(server.messages) == 2)
        await within(upstream.close())
        for answer in answers:
            assert "closed" in await answer.words()
