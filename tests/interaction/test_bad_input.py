from tests.interaction import text
from tests.interaction.clients.raw import HANDSHAKE, RawClient
from tests.interaction.clients.stdio import StdioLink
from tests.interaction.clients.streamable import StreamableLink
from tests.interaction.route import CORNERS, CROSSED, HTTP_BACK, HTTP_FRONT, STDIO_BACK, STDIO_FRONT, Route, routes
from tests.interaction.servers.tools import NOISE
from tests.interaction.stage import Stage, raw_post
from tests.waiting import wait_until_async

NO_MESSAGES = {
    b"": None,
    b"not json": -32700,
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list"': -32700,
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list",}': -32700,
    b'{"jsonrpc":"2.0","id":NaN,"method":"tools/list"}': -32700,
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"x":NaN}}': -32700,
    b"\xff\xfe{}": -32700,
    b"[" * 100_000: -32600,
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":' + b'{"a":' * 50_000: -32700,
    b'[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]': -32600,
    b"[]": -32600,
    b"42": -32600,
    b'"text"': -32600,
    b"null": -32600,
    b"{}": -32600,
    b'{"jsonrpc":"2.0","id":1}': -32600,
    b'{"jsonrpc":"2.0","id":{},"method":"ping"}': -32600,
    b'{"jsonrpc":"2.0","id":[1],"method":"ping"}': -32600,
    b'{"jsonrpc":"2.0","id":true,"method":"ping"}': -32600,
    b'{"jsonrpc":"2.0","id":1,"method":7}': -32600,
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":"text"}': -32600,
}
"""What is no message, and the JSON-RPC error that it deserves."""


async def _still_works(client: RawClient) -> None:
    assert (await client.call("nonce", {"nonce": "still here"}, id="still here")).words == "still here"


@routes(STDIO_FRONT)
async def test_what_is_no_message_on_stdin_gets_an_error(actors: Stage, route: Route):
    async with actors.client(route) as client:
        assert isinstance(client.link, StdioLink)
        for raw, code in NO_MESSAGES.items():
            await client.link.write(raw + b"\n")
            await _still_works(client)
            if code is not None:
                errors = [text.value(text.at_path(stray, "error", "code")) for stray in client.strays]
                assert errors == [code], (raw[:80], client.strays)
            client.strays.clear()


@routes(HTTP_FRONT)
async def test_what_is_no_message_in_a_post_gets_an_error(actors: Stage, route: Route):
    async with actors.client(route) as client:
        assert isinstance(client.link, StreamableLink)
        headers = client.link._headers_for({"method": b'"x"', "params": client.enveloped({}) or b"{}"})
        for raw, code in NO_MESSAGES.items():
            status, _, body = await raw_post(client.link.url, raw, headers)
            assert status == 400, (raw[:80], status, body)
            assert text.value(text.at_path(body, "error", "code")) == (code or -32700), (raw[:80], body)
            assert text.value(text.members(body).get("id", b"null")) in (None, 1), raw[:80]
        await _still_works(client)


@routes(CORNERS)
async def test_no_part_of_a_bad_message_reaches_the_server(stage: Stage, route: Route):
    log = stage.log()
    async with stage.client(route) as client:
        log.mark()
        for raw in NO_MESSAGES:
            if isinstance(client.link, StdioLink):
                await client.link.write(raw + b"\n")
            else:
                assert isinstance(client.link, StreamableLink)
                await raw_post(client.link.url, raw, client.link._headers_for({}))
        await _still_works(client)
        client.strays.clear()
    assert log.requests() == ["tools/call"]


@routes(CORNERS)
async def test_answers_to_questions_that_nobody_asked_do_no_harm(actors: Stage, route: Route):
    if route.era != HANDSHAKE:
        route = Route(route.front, route.back, route.through, HANDSHAKE)
    async with actors.client(route) as client:
        for identifier in (0, "q1", 10**30, "nobody"):
            await client.link.send(text.response(identifier, {"roots": []}))
            await client.link.send(text.failure(identifier, -1, "no"))
        await client.notify("notifications/cancelled", {"requestId": "no_client"})
        await client.notify("notifications/progress", {"progressToken": "no_client", "progress": 1})
        await _still_works(client)


@routes(STDIO_FRONT, HANDSHAKE)
async def test_requests_before_initialize_are_answered(actors: Stage, route: Route):
    async with actors.client(route, greet=False) as client:
        assert "error" in (await client.request("tools/list", within=40)).parts
        await client.greet()
        await _still_works(client)


@routes(STDIO_FRONT)
async def test_blank_lines_and_carriage_returns_are_harmless(actors: Stage, route: Route):
    async with actors.client(route) as client:
        assert isinstance(client.link, StdioLink)
        params = text.dump(client.enveloped(client.call_params("nonce", {"nonce": "crlf"})))
        exchange = await client.start_call("nonce", {"nonce": "first"}, id="first")
        await client.link.write(b"\n\r\n  \n")
        line = text.request("first", "tools/call", params).replace(b'"first"', b'"second"')
        second = await client.start_call("nonce", {"nonce": "plain"}, id="third")
        await client.link.write(line + b"\r\n")
        assert (await exchange.answer()).words == "first"
        assert (await second.answer()).words == "plain"
        await _still_works(client)
        await wait_until_async(lambda: client.strays, "the last call is answered, over HTTP after later calls")
        assert [text.value(text.at_path(stray, "id")) for stray in client.strays] == ["second"]
        client.strays.clear()


@routes(STDIO_FRONT)
async def test_a_message_may_come_in_small_pieces(actors: Stage, route: Route):
    async with actors.client(route) as client:
        assert isinstance(client.link, StdioLink)
        params = text.dump(client.enveloped(client.call_params("nonce", {"nonce": "pieces"})))
        line = text.request("pieces", "tools/call", params) + b"\n"
        for start in range(0, len(line), 7):
            await client.link.write(line[start : start + 7])
        await _still_works(client)
        (reply,) = client.strays
        assert b'"pieces"' in reply
        client.strays.clear()


@routes(CROSSED)
async def test_invalid_utf8_of_the_client_is_refused_or_replaced(actors: Stage, route: Route):
    async with actors.client(route) as client:
        exchange = await client.start_call("echo", b'{"broken":"a\xffb\xc3"}')
        reply = await exchange.answer()
        if "result" in reply.parts:
            assert text.value(text.at_path(reply.result, "structuredContent", "broken")) == "a\ufffdb\ufffd"
        else:
            assert reply.code in (-32700, -32600)
        await _still_works(client)
        client.strays.clear()


@routes(STDIO_BACK)
async def test_noise_of_a_stdio_upstream_is_not_felt(actors: Stage, route: Route):
    async with actors.client(route) as client:
        for kind in (*NOISE, "wrong id", "duplicate reply", "stderr flood", "invalid utf-8", "crlf", "split"):
            for _ in range(2):
                assert (await client.call("noise", {"kind": kind})).words == f"after {kind}"
            await _still_works(client)
        assert client.strays == []


@routes(HTTP_BACK)
async def test_noise_of_an_http_upstream_is_not_felt(actors: Stage, route: Route):
    async with actors.client(route) as client:
        for kind in ("wrong id", "duplicate reply", "invalid utf-8"):
            reply = await client.call("noise", {"kind": kind})
            if "result" in reply.parts:
                assert reply.words == f"after {kind}"
            else:
                assert kind == "wrong id"
            await _still_works(client)
        assert client.strays == []


@routes(STDIO_BACK)
async def test_a_banner_at_the_start_is_skipped(stage: Stage, route: Route):
    async with stage.client(route, "--banner", "Welcome to the {server}!") as client:
        await _still_works(client)
        assert client.strays == []


@routes(STDIO_BACK)
async def test_invalid_utf8_of_an_upstream_becomes_valid(actors: Stage, route: Route):
    async with actors.client(route) as client:
        reply = await client.call("noise", {"kind": "invalid utf-8"})
        assert text.value(text.at_path(reply.raw, "result", "broken")) == "a\ufffdb\ufffd"
        reply.raw.decode("utf-8", "strict")
