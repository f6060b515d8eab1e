"""Every way in which HTTP/1.1 says where an answer ends."""

import asyncio

import pytest

from riglm.adapters.mcp.wire.http_client import HttpClient, Target
from tests.unit.adapters.wire.peers import OK, Answer, Caller, answering, client_for, post, serving, within

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

ANSWERS = {
    "with a length": (OK, 200, b"ok", True),
    "with a length of nothing": (b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", 202, b"", True),
    "in chunks": (CHUNKED + b"1\r\no\r\n1\r\nk\r\n0\r\n\r\n", 200, b"ok", True),
    "in chunks with extensions and trailers": (CHUNKED + b"2;a=b\r\nok\r\n0\r\nDigest: x\r\n\r\n", 200, b"ok", True),
    "without a body": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    "not modified, with the length it would have": (
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\nContent-Encoding: gzip\r\n\r\n",
        304,
        b"",
        True,
    ),
    "after interim answers": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK,
        200,
        b"ok",
        True,
    ),
    "and says that it closes": (
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        200,
        b"ok",
        False,
    ),
    "of HTTP/1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", False),
    "without a reason": (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", True),
    "encoded as itself": (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: Identity\r\nContent-Length: 2\r\n\r\nok",
        200,
        b"ok",
        True,
    ),
    "compressed, but empty": (
        b"HTTP/1.1 202 OK\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n",
        202,
        b"",
        True,
    ),
    "elsewhere": (b"HTTP/1.1 307 Go\r\nLocation: http://other/\r\nContent-Length: 2\r\n\r\nok", 307, b"ok", True),
    "with an error": (b"HTTP/1.1 503 No\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\nok", 503, b"ok", True),
}


@pytest.mark.parametrize(("raw", "status", "body", "kept"), ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("step", [1, 1000])
async def test_an_answer_is_read_to_its_end(raw: bytes, status: int, body: bytes, kept: bool, step: int) -> None:
    async def script(caller: Caller) -> None:
        while await caller.request() is not None:
            for at in range(0, len(raw), step):
                await caller.say(raw[at : at + step])
                await asyncio.sleep(0)

    async with serving(script) as server, client_for() as client:
        for _ in range(3):
            answer = await post(client, server.target)[0].complete()
            assert (answer.status, answer.body) == (status, body)
            assert answer.heard == ["head", "data", "end"][:: 1 if body else 2]
        assert server.callers == (1 if kept else 3)


@pytest.mark.parametrize("step", [1, 1000])
async def test_an_answer_of_no_length_ends_when_the_server_closes(step: int) -> None:
    raw = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n"

    async def script(caller: Caller) -> None:
        await caller.request()
        for at in range(0, len(raw), step):
            await caller.say(raw[at : at + step])

    async with serving(script) as server, client_for() as client:
        for _ in range(2):
            answer = await post(client, server.target)[0].complete()
            assert answer.body == b"data: 1\n\n"
        assert server.callers == 2


async def test_a_request_arrives_as_it_was_meant_in_one_piece() -> None:
    pieces: list[bytes] = []

    async def script(caller: Caller) -> None:
        pieces.append(await caller.reader.read(65_536))
        await caller.say(OK)
        await caller.hang_up()

    async with serving(script) as server, client_for() as client:
        await post(client, server.target, b'{"a":1}')[0].complete()
        assert pieces == [
            b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept-Encoding: identity\r\n"
            b'Content-Type: application/json\r\nContent-Length: 7\r\n\r\n{"a":1}' % server.port
        ]


@pytest.mark.parametrize(("method", "length"), [(b"GET", None), (b"DELETE", None), (b"POST", "0"), (b"PUT", "0")])
async def test_a_request_without_a_body_has_a_length_only_where_one_is_expected(
    method: bytes, length: str | None
) -> None:
    async def script(caller: Caller) -> None:
        request = await caller.request()
        assert request is not None
        server.requests.append(request)
        await caller.say(OK)

    async with serving(script) as server, client_for() as client:
        answer = Answer()
        client.send(server.target, method, b"", b"", answer)
        await answer.complete()
        assert server.requests[0].headers.get("content-length") == length
        assert server.requests[0].line == f"{method.decode()} /mcp HTTP/1.1"


async def test_of_a_repeated_header_the_first_counts_and_all_are_there() -> None:
    raw = b"HTTP/1.1 200 OK\r\nX-A: 1\r\nCONTENT-LENGTH: 0\r\nx-a: 2\r\n\r\n"
    async with serving(answering(raw)) as server, client_for() as client:
        headers = (await post(client, server.target)[0].complete()).headers
        assert headers.get(b"x-a") == b"1"
        assert headers.all(b"x-a") == [b"1", b"2"]
        assert headers.get(b"content-length") == b"0"
        assert headers.get(b"missing") is None
        assert list(headers.pairs) == [(b"x-a", b"1"), (b"content-length", b"0"), (b"x-a", b"2")]


async def test_a_paused_answer_is_not_read_and_a_resumed_one_arrives_whole() -> None:
    body = b"x" * 20_000_000

    async with (
        serving(answering(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body, OK)) as server,
        client_for() as client,
    ):
        answer, exchange = post(client, server.target)
        await within(answer.got_data.wait())
        exchange.pause()
        exchange.pause()
        before = len(answer.chunks)
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(answer.chunks) == before
        exchange.resume()
        exchange.resume()
        await answer.complete()
        assert answer.body == body
        exchange.pause()
        await post(client, server.target)[0].complete()
        assert server.callers == 1


async def test_credentials_of_the_url_are_sent_unless_others_are_given() -> None:
    async def script(caller: Caller) -> None:
        while (request := await caller.request()) is not None:
            server.requests.append(request)
            await caller.say(OK)

    async with serving(script) as server, client_for() as client:
        target = Target(f"http://me:s%3Acret@127.0.0.1:{server.port}/mcp")
        for block in (b"", b"X-Authorization: x\r\n", b"aUTHORIZATION: Bearer t\r\n"):
            answer = Answer()
            client.send(target, b"POST", block, b"{}", answer)
            await answer.complete()
        assert [each.headers["authorization"] for each in server.requests] == [
            "Basic bWU6czpjcmV0",
            "Basic bWU6czpjcmV0",
            "Bearer t",
        ]
        assert all(each.raw.lower().count(b"\r\nauthorization:") == 1 for each in server.requests)


@pytest.mark.parametrize("block", [b"A: b", b"A: b\r\n\r\nGET /", b"A: b\r\n\r\n"])
async def test_a_header_block_that_would_end_the_head_is_refused(block: bytes) -> None:
    client = HttpClient(environment={})
    with pytest.raises(ValueError, match="header block"):
        client.send(Target("http://127.0.0.1:9/"), b"POST", block, b"", Answer())
