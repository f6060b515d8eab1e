import os

from tests.interaction import text
from tests.interaction.clients.raw import HANDSHAKE, MODERN
from tests.interaction.route import CORNERS, CROSSED, DIRECT, EVERY, MAIN, Route, routes
from tests.interaction.servers.catalog import LONE_SURROGATE, ODD_NUMBERS
from tests.interaction.stage import Stage

ODD = (
    b'{ "z" : 1.0,"a":1 , "numbers":'
    + ODD_NUMBERS
    + b', "half":'
    + LONE_SURROGATE
    + b',"esc":"\\u0061\\/\\u00E9\\ud83d\\ude00",'
    b'"plain":"\xc3\xa9 \xf0\x9f\x98\x80 \\u0000 \xe2\x80\xa8",'
    b'"deep":{"":[ ],"a\\nb":[null,true,{"x":[[[{}]]]}]},"_meta":{"k":1.0}}'
)
"""Arguments that change when they are parsed and written again."""

RESULTS = {
    "numbers": b'{"content":[],"n":' + ODD_NUMBERS + b"}",
    "spaces": b'{ "content" : [ ] ,\t"x" :  1 }',
    "escapes": b'{"content":[{"type":"text","text":"\\u0061\\/\\u00e9\xc3\xa9\\u2028\\b"}]}',
    "lone surrogate": b'{"content":[{"type":"text","text":' + LONE_SURROGATE + b"}]}",
    "raw separators": b'{"content":[{"type":"text","text":"\xe2\x80\xa8\xe2\x80\xa9\xc2\x85"}]}',
    "same key twice": b'{"content":[],"structuredContent":{"k":1,"k":2}}',
    "vendor fields": b'{"vendor/a":{"b":[1.0,{"c":null}]},"content":[],"_meta":{"vendor":{"x":1e400}},"zzz":false}',
    "words of the protocol": b'{"content":[],"id":7,"jsonrpc":"2.0","method":"ping","error":null,"nextCursor":"c"}',
}


def whole(result: bytes, era: str) -> bytes:
    return text.merged(b'{"resultType":"complete"}', result) if era == MODERN else result


@routes(CROSSED)
async def test_params_of_a_call_arrive_byte_for_byte(actors: Stage, route: Route):
    log = actors.log()
    async with actors.client(route) as client:
        exchange = await client.start_call("echo", ODD, meta=b'{"vendor/meta" : {"n":1.50}}')
        await exchange.answer()
    assert [entry.parts["params"] for entry in log.received("tools/call")] == [exchange.params]


@routes(EVERY)
async def test_results_arrive_byte_for_byte(actors: Stage, route: Route):
    async with actors.client(route) as client:
        for name, result in RESULTS.items():
            wanted = whole(result, route.era)
            reply = await client.call("verbatim", {"hex": wanted.hex()})
            assert reply.result == wanted, name


@routes(CROSSED)
async def test_errors_arrive_byte_for_byte(actors: Stage, route: Route):
    async with actors.client(route) as client:
        reply = await client.call("fail", b'{"code":-31999,"message":"caf\\u00e9 \\u0061","data":' + ODD + b"}")
        assert reply.error == b'{"code":-31999,"message":"caf\\u00e9 a","data":' + ODD + b"}"
        assert (await client.call("no such tool")).error == (
            b'{"code":-32602,"message":"Unknown tool: no such tool","data":{"name":"no such tool"}}'
        )


@routes(CORNERS)
async def test_a_failed_tool_is_a_result(actors: Stage, route: Route):
    wanted = b'{"content":[{"type":"text","text":"it failed"}],"isError":true,"structuredContent":{"why":1.0}}'
    async with actors.client(route) as client:
        assert (await client.call("is_error")).result == whole(wanted, route.era)


@routes(CROSSED)
async def test_the_client_sees_the_server_s_own_greeting(actors: Stage, route: Route):
    straight = Route(route.back, route.back, DIRECT, route.era)
    async with actors.client(route) as client, actors.client(straight) as witness:
        assert client.greeting
        assert witness.greeting
        assert client.greeting.result == witness.greeting.result


@routes(CORNERS, HANDSHAKE)
async def test_the_server_sees_the_client_s_own_greeting(stage: Stage, route: Route):
    log = stage.log()
    async with stage.client(route, greet=False) as client:
        params = (
            b'{ "protocolVersion":"2025-11-25","capabilities":{"x":1.0},"clientInfo":{"name":"n","version":"1","y":'
            + ODD
            + b"}}"
        )
        await client.request("initialize", params)
        await client.notify("notifications/initialized", b'{"_meta":{"n":1.50}}')
        await client.call("echo")
    assert [entry.parts["params"] for entry in log.received("initialize")] == [params]
    assert [entry.parts.get("params") for entry in log.received("notifications/initialized")] == [
        b'{"_meta":{"n":1.50}}'
    ]


@routes(CROSSED)
async def test_unknown_requests_pass_both_ways(actors: Stage, route: Route):
    log = actors.log()
    async with actors.client(route) as client:
        for method in ("vendor/do-it", "tasks/get", "tasks/result", "tasks/update", "tasks/cancel", "tasks/list"):
            exchange = await client.start(method, ODD.replace(b"_meta", b"meta"))
            reply = await exchange.answer()
            assert text.at_path(reply.result, "params") == exchange.params
            assert [entry.parts["params"] for entry in log.received(method)] == [exchange.params]


@routes(CROSSED, HANDSHAKE)
async def test_unknown_notifications_of_the_client_reach_the_server(actors: Stage, route: Route):
    log = actors.log()
    async with actors.client(route) as client:
        await client.notify("notifications/vendor/thing", ODD)
        entry = await log.wait_for(
            lambda entry: entry.event == "received" and entry.method == "notifications/vendor/thing"
        )
    assert entry.parts["params"] == ODD


@routes(CROSSED)
async def test_unknown_notifications_of_the_server_reach_the_client(actors: Stage, route: Route):
    async with actors.client(route) as client:
        await client.call("notify", b'{"method":"notifications/vendor/other","params":' + ODD + b"}")
        told = await client.wait_for("notifications/vendor/other")
    assert told.params == ODD


@routes(MAIN, HANDSHAKE)
async def test_what_a_server_says_of_its_own_accord_reaches_the_client(actors: Stage, route: Route):
    async with actors.client(route) as client:
        assert (await client.wait_for("notifications/vendor/hello")).params == b'{"n":1.0}'


@routes(CROSSED)
async def test_ten_megabytes_come_back_in_one_result(actors: Stage, route: Route):
    async with actors.client(route) as client:
        words = (await client.call("big", {"size": 10_000_000}, within=60)).words
        assert len(words.encode()) > 8_000_000
        assert set(words.split("\n")) == {"0123456789abcdef\u20ac", "--0123456789abcdef\u20ac", "--"}


@routes(CROSSED)
async def test_ten_megabytes_go_out_in_one_call(actors: Stage, route: Route):
    filler = os.urandom(5_000_000).hex().encode()
    async with actors.client(route) as client:
        reply = await client.call("echo", b'{"filler":"' + filler + b'"}', within=60)
    assert text.at_path(reply.result, "structuredContent") == b'{"filler":"' + filler + b'"}'


@routes(MAIN, HANDSHAKE)
async def test_sizes_around_buffer_bounds_pass(actors: Stage, route: Route):
    async with actors.client(route) as client:
        for size in (bound + more for bound in (1 << 16, 1 << 17, 1 << 18, 1 << 20) for more in range(-150, 3, 51)):
            arguments = b'{"filler":"' + b"x" * size + b'"}'
            assert text.at_path((await client.call("echo", arguments)).result, "structuredContent") == arguments


@routes(CROSSED)
async def test_answers_carry_the_id_as_it_was_written(actors: Stage, route: Route):
    written = (
        b"0",
        b"-1",
        b"9007199254740993",
        b'""',
        b'"0"',
        b'"\xc3\xa9 \\u0061"',
        b'"a\\"b"',
        b'"' + b"i" * 300 + b'"',
    )
    async with actors.client(route) as client:
        exchanges = [
            await client.start_call("nonce", {"nonce": str(number)}, id=raw) for number, raw in enumerate(written)
        ]
        for number, exchange in enumerate(exchanges):
            assert (await exchange.answer()).words == str(number)
