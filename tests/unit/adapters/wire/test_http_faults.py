"""Servers that misbehave: every exchange ends, with a failure that says what happened."""

import asyncio
import logging
import socket

import pytest

from riglm.adapters.mcp.wire.dialing import BACK_OFF
from riglm.adapters.mcp.wire.http_client import HttpExchange, Target
from tests.unit.adapters.wire.peers import OK, Answer, Caller, answering, client_for, free_port, post, serving, within

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LIMIT = 2_000
FILL = b"a" * 1_500

BROKEN = {
    "garbage": (b"\x00\x01\x02 hello\r\n\r\n", "does not use HTTP", []),
    "another protocol": (b"SSH-2.0-OpenSSH_9.0\r\n", "does not use HTTP", []),
    "a bad status": (b"HTTP/1.1 99 No\r\n\r\n", "does not use HTTP", []),
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "does not use HTTP", []),
    "a length and chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "does not use HTTP",
        [],
    ),
    "a chunk of no size": (CHUNKED + b"x\r\nok\r\n", "does not use HTTP", ["head"]),
    "nothing": (b"", "closed the connection without an answer", []),
    "half a head": (b"HTTP/1.1 200 OK\r\nContent-", "in the middle of its answer", []),
    "half a body": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        "in the middle of its answer",
        ["head", "data"],
    ),
    "half a chunk": (CHUNKED + b"9\r\nabc", "in the middle of its answer", ["head", "data"]),
    "no last chunk": (CHUNKED + b"3\r\nabc\r\n", "in the middle of its answer", ["head", "data"]),
    "only an interim answer": (b"HTTP/1.1 100 Continue\r\n\r\n", "in the middle of its answer", []),
    "a switch of protocol": (
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nabc",
        "switch to another protocol",
        [],
    ),
    "a compressed body": (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok",
        "compressed its answer (b'gzip')",
        [],
    ),
    "a compressed transfer": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "transfer coding that was not asked for: b'gzip, chunked'",
        [],
    ),
    "a large head": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: " + FILL + b"\r\nX-B: " + FILL + b"\r\n\r\nok",
        "more than 2000 bytes of headers",
        [],
    ),
    "an endless header": (b"HTTP/1.1 200 OK\r\nX-A: " + FILL * 3, "more than 2000 bytes of headers", []),
    "endless headers": (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1_000, "more than 2000 bytes of headers", []),
    "endless interim answers": (b"HTTP/1.1 100 Continue\r\n\r\n" * 200, "more than 2000 bytes of headers", []),
    "endless trailers": (CHUNKED + b"2\r\nok\r\n0\r\n" + b"A: b\r\n" * 1_000, "more than 2000 bytes", ["head", "data"]),
    "an endless chunk extension": (CHUNKED + b"2;" + FILL * 3, "more than 2000 bytes", ["head"]),
}


@pytest.mark.parametrize(("raw", "reason", "heard"), BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("step", [1, 100_000])
async def test_a_broken_answer_fails_and_says_why(raw: bytes, reason: str, heard: list[str], step: int) -> None:
    async def script(caller: Caller) -> None:
        await caller.request()
        for at in range(0, len(raw), step):
            await caller.say(raw[at : at + step])
            await asyncio.sleep(0)
        while raw.endswith((b"A: b\r\n", b"aaaaaa")):
            await caller.say(raw[-6:] * 1_000)
        if "closed" not in reason and "middle" not in reason:
            await caller.hang_up()

    async with serving(script) as server, client_for(max_header_bytes=LIMIT) as client:
        answer, _ = post(client, server.target)
        failure = await answer.broken()
        await server.settle()
        assert failure.sent
        assert not failure.reused
        assert str(failure).startswith(server.url)
        assert reason in str(failure)
        assert answer.heard == [*heard, "failed"]


async def test_a_head_of_just_the_limit_passes_in_front_of_a_large_body() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 50000\r\nX-A: "
    raw = head + b"a" * (LIMIT - len(b"content-length50000x-a")) + b"\r\n\r\n" + b"x" * 50_000
    async with serving(answering(raw)) as server, client_for(max_header_bytes=LIMIT) as client:
        assert len((await post(client, server.target)[0].complete()).body) == 50_000


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", b"HTTP/1.1 200 OK\r\n\r\nabc"]
)
async def test_a_reset_is_a_failure_even_where_a_close_would_be_an_end(said: bytes) -> None:
    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.say(said)
        if said:
            await within(answer.got_data.wait())
        caller.reset()

    async with serving(script) as server, client_for() as client:
        answer, _ = post(client, server.target)
        failure = await answer.broken()
        assert "closed the connection" in str(failure)
        assert isinstance(failure.__cause__, ConnectionError)


async def test_a_kept_connection_that_dies_before_a_byte_is_told_apart() -> None:
    async def script(caller: Caller) -> None:
        await caller.request()
        if caller.number == 1:
            await caller.say(OK)
            await caller.request()

    async with serving(script) as server, client_for() as client:
        await post(client, server.target)[0].complete()
        failure = await post(client, server.target)[0].broken()
        assert (failure.sent, failure.reused) == (True, True)
        failure = await post(client, server.target)[0].broken()
        assert (failure.sent, failure.reused) == (True, False)


async def test_a_kept_connection_that_dies_after_a_byte_is_an_ordinary_failure() -> None:
    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.say(OK)
        await caller.request()
        await caller.say(b"H")

    async with serving(script) as server, client_for() as client:
        await post(client, server.target)[0].complete()
        assert not (await post(client, server.target)[0].broken()).reused


@pytest.mark.parametrize("extra", [OK, b"\x00garbage", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong"])
async def test_bytes_behind_an_answer_never_become_the_next_answer(extra: bytes) -> None:
    async with serving(answering(OK + extra)) as server, client_for() as client:
        for _ in range(3):
            assert (await post(client, server.target)[0].complete()).body == b"ok"
        assert server.callers == 3


async def test_bytes_on_an_idle_connection_close_it() -> None:
    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.say(OK)
        await within(answered.wait())
        await caller.say(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await caller.hang_up()
        gone.set()

    answered, gone = asyncio.Event(), asyncio.Event()
    async with serving(script) as server, client_for() as client:
        await post(client, server.target)[0].complete()
        answered.set()
        await within(gone.wait())
        assert (await post(client, server.target)[0].complete()).status == 200
        assert server.callers == 2


async def test_an_early_answer_to_a_body_nobody_reads_is_heard_and_the_connection_dropped() -> None:
    async def script(caller: Caller) -> None:
        await caller.reader.readuntil(b"\r\n\r\n")
        await caller.say(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        await within(heard.wait())

    heard = asyncio.Event()
    async with serving(script) as server, client_for() as client:
        answer, _ = post(client, server.target, b"x" * 50_000_000)
        await answer.complete()
        heard.set()
        assert answer.status == 413
        assert (await post(client, server.target)[0].complete()).status == 413
        assert server.callers == 2


class Raising(Answer):
    def __init__(self, *when: str) -> None:
        super().__init__()
        self.when = when
        self.exchange: HttpExchange | None = None

    def _hear(self, what: str) -> None:
        super()._hear(what)
        if what in self.when:
            if "abort" in self.when and self.exchange is not None:
                self.exchange.abort()
            raise RuntimeError("boom")


@pytest.mark.parametrize("what", ["head", "data"])
async def test_a_sink_that_raises_is_logged_and_fails(what: str, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(answering(CHUNKED + b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n", OK)) as server, client_for() as client:
        answer = Raising(what)
        client.send(server.target, b"POST", b"", b"{}", answer)
        failure = await answer.broken()
        assert answer.heard == (["head", "failed"] if what == "head" else ["head", "data", "failed"])
        assert isinstance(failure.__cause__, RuntimeError)
        assert [each.levelno for each in caplog.records] == [logging.ERROR]
        assert (await post(client, server.target)[0].complete()).status == 200
        assert server.callers == 2


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"])
async def test_an_abort_closes_the_connection_and_the_sink_hears_nothing(said: bytes) -> None:
    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.say(said)
        asked.set()
        await caller.hang_up()
        gone.set()

    asked, gone = asyncio.Event(), asyncio.Event()
    async with serving(script) as server, client_for() as client:
        answer, exchange = post(client, server.target)
        await within(asked.wait())
        if said:
            await within(answer.got_data.wait())
        exchange.abort()
        exchange.abort()
        exchange.pause()
        exchange.resume()
        await within(gone.wait())
        assert answer.heard == (["head", "data"] if said else [])


async def test_an_abort_after_the_end_leaves_the_connection_to_others() -> None:
    async with serving(answering(OK)) as server, client_for() as client:
        answer, exchange = post(client, server.target)
        await answer.complete()
        other, _ = post(client, server.target)
        exchange.abort()
        await other.complete()
        assert server.callers == 1


async def test_a_server_that_refuses_gets_some_time_to_start() -> None:
    def start() -> None:
        tasks.append(asyncio.create_task(listener.start_serving()))

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        writer.close()

    tasks: list[asyncio.Task[None]] = []
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        listener = await asyncio.start_server(converse, sock=sock, start_serving=False)
        async with client_for() as client:
            answer, _ = post(client, Target(f"http://127.0.0.1:{sock.getsockname()[1]}/"))
            asyncio.get_running_loop().call_later(BACK_OFF[0] + BACK_OFF[1] / 2, start)
            await answer.complete()
        listener.close()
        await listener.wait_closed()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_a_server_that_goes_on_refusing_was_sent_nothing(host: str) -> None:
    async with client_for() as client:
        answer, _ = post(client, Target(f"http://user:pass@{host}:{free_port()}/?key=secret"))
        failure = await answer.broken()
        assert (failure.sent, failure.reused) == (False, False)
        assert f"Cannot connect to http://{host}" in str(failure)
        assert "pass" not in str(failure)
        assert "secret" not in str(failure)
