"""A client on standard input and output: pipes, sockets, files; one that leaves, half leaves, does not read."""

import asyncio
import contextlib
import json
import logging
import os
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from riglm.adapters.mcp.downstream import stdio
from riglm.adapters.mcp.downstream.stdio import StdioClient
from riglm.domain import jsonrpc
from tests.unit.adapters.downstream.inside import Inside
from tests.unit.adapters.downstream.peer import META, request, within

LIMIT = 1 << 20


class Client:
    """The other ends of riglm's standard input and output."""

    def __init__(self, inside: Inside, up: int, down: int, source: int, target: int, **options: Any) -> None:
        self.inside = inside
        self.script = inside.script
        self.gone = asyncio.Event()
        self.up = up
        self.down = down
        self.riglm = StdioClient(inside, on_disconnect=self.gone.set, **{"limit": LIMIT, "buffer": 1 << 20, **options})
        self._fds = (source, target)
        self._rest = b""

    async def open(self) -> "Client":
        await self.riglm.open(*self._fds)
        return self

    async def write(self, *messages: bytes) -> None:
        data = b"".join(message + b"\n" for message in messages)
        await asyncio.to_thread(_write_all, self.up, data)

    async def read(self) -> Any:
        while b"\n" not in self._rest:
            data = await within(asyncio.to_thread(os.read, self.down, 1 << 16))
            assert data, "the output ended"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    async def read_to_end(self) -> list[Any]:
        found = self._rest
        while data := await within(asyncio.to_thread(os.read, self.down, 1 << 16)):
            found += data
        return [json.loads(line) for line in found.splitlines()]

    def close_up(self) -> None:
        self.up = _closed(self.up)

    def close_down(self) -> None:
        self.down = _closed(self.down)

    async def close(self) -> None:
        self.close_up()
        self.close_down()
        await within(self.riglm.close())


def _closed(fd: int) -> int:
    if fd >= 0:
        os.close(fd)
    return -1


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def pipes() -> tuple[int, int, int, int]:
    source, up = os.pipe()
    down, target = os.pipe()
    return up, down, source, target


def unix_sockets() -> tuple[int, int, int, int]:
    ours, theirs = socket.socketpair()
    one, other = socket.socketpair()
    return ours.detach(), one.detach(), theirs.detach(), other.detach()


Connect = Callable[..., Awaitable[Client]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    async with contextlib.AsyncExitStack() as stack:

        async def begin(ends: Callable[[], tuple[int, int, int, int]] = pipes, **options: Any) -> Client:
            client = Client(Inside(), *ends(), **options)
            stack.push_async_callback(client.close)
            return await client.open()

        yield begin


async def test_a_line_over_the_limit_is_refused_under_its_id_and_the_next_one_works(connect: Connect):
    client = await connect(limit=70_000)
    await client.write(request("echo", {"x": "y" * 80_000}, key="large"), request("echo"))
    refusal = await client.read()
    assert refusal["id"] == "large"
    assert "over the limit of 70000" in refusal["error"]["message"]
    assert "result" in await client.read()


async def test_a_request_that_nests_too_deeply_is_refused_under_its_id(connect: Connect):
    client = await connect()
    await client.write(b'{"jsonrpc":"2.0","id":3,"method":"echo","params":{"x":%b}}' % (b"[" * 9000 + b"]" * 9000))
    refusal = await client.read()
    assert (refusal["id"], refusal["error"]["code"]) == (3, -32700)


async def test_what_was_asked_before_the_end_of_input_is_answered(connect: Connect):
    client = await connect()
    await client.write(request("hold", key=1), request("hold", {"_meta": META}, key=2))
    client.close_up()
    first, second = await client.script.held(1), await client.script.held(2)
    while not client.riglm._ended:
        await asyncio.sleep(0)
    assert not client.gone.is_set()
    first.answer()
    assert (await client.read())["id"] == 1
    assert not client.gone.is_set()
    second.answer()
    assert (await client.read())["id"] == 2
    await within(client.gone.wait(), 1)


async def test_an_answer_that_does_not_come_does_not_keep_a_client_that_left(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stdio, "ANSWER_SECONDS", 0.05)
    client = await connect()
    await client.write(request("initialize"), request("hold"))
    await client.read()
    await client.script.held()
    client.close_up()
    await within(client.gone.wait(), 5)


async def test_a_stop_waits_for_the_response_to_a_request_in_flight(connect: Connect):
    client = await connect()
    await client.write(request("hold"))
    asked = await client.script.held()
    assert client.riglm.stop_reading()
    assert not client.gone.is_set()
    asked.answer(b'"in time"')
    await within(client.gone.wait(), 1)
    assert (await client.read())["result"] == "in time"


async def test_a_request_without_a_response_gets_an_error_when_riglm_stops(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stdio, "STOP_SECONDS", 0.05)
    client = await connect()
    await client.write(request("hold"))
    await client.script.held()
    assert client.riglm.stop_reading()
    await within(client.gone.wait(), 5)
    await client.riglm.close()
    [response] = await client.read_to_end()
    assert "riglm is stopping" in response["error"]["message"]


@pytest.mark.parametrize("ends", [pipes, unix_sockets])
async def test_a_client_that_closed_its_output_is_gone(connect: Connect, ends: Callable[[], tuple[int, int, int, int]]):
    client = await connect(ends)
    await client.write(request("hold"))
    asked = await client.script.held()
    client.close_down()
    await within(client.gone.wait())
    asked.say()
    asked.answer()


async def test_nothing_more_is_read_from_a_client_that_does_not_read(connect: Connect):
    client = await connect(buffer=1 << 16, limit=64 << 20)
    await client.write(request("initialize"))
    await client.read()
    channel = client.inside.talks[0].channel
    big = jsonrpc.notification("notifications/x", b'"%b"' % (b"x" * 300_000))
    channel.push(big)
    count = len(client.script.asked)
    await client.write(request("echo", key="held back"))
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(client.script.asked) == count
    assert (await client.read())["method"] == "notifications/x"
    assert (await client.read())["id"] == "held back"


NEWS = jsonrpc.notification("notifications/x", b'"%b"' % (b"x" * 30_000))


async def flooded(client: Client, count: int) -> None:
    """Have so much news wait for the client."""
    await client.write(request("initialize"))
    await client.read()
    for _ in range(count):
        client.inside.talks[0].channel.push(NEWS)


async def test_a_client_that_closed_its_input_is_waited_for_while_it_reads_and_no_longer(connect: Connect):
    client = await connect(buffer=1 << 16)
    await client.write(request("initialize"), request("hold"))
    await client.script.held()
    client.close_up()
    while not client.riglm._ended:
        await asyncio.sleep(0)
    for _ in range(30):
        client.inside.talks[0].channel.push(NEWS)
    taken = client.riglm._output.taken
    while client.riglm._output.taken == taken:
        await client.read()
    client.riglm._waited()
    assert not client.gone.is_set()
    client.riglm._waited()
    assert client.gone.is_set()


async def test_a_client_that_never_reads_is_given_up_before_memory_is(
    connect: Connect, caplog: pytest.LogCaptureFixture
):
    client = await connect(buffer=1 << 16, limit=1 << 16, most_waiting=1 << 16)
    with caplog.at_level(logging.INFO):
        await flooded(client, 20)
    assert client.gone.is_set()
    assert client.riglm.is_stuck
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert re.fullmatch(r"did not read the \d+ bytes that wait for it", record.reason)  # type: ignore[attr-defined]


async def test_a_client_that_takes_no_byte_for_long_enough_is_given_up(connect: Connect):
    client = await connect(buffer=1 << 16, limit=1 << 16, most_waiting=1 << 18, stall=0.05)
    await flooded(client, 15)
    assert not client.gone.is_set()
    await within(client.gone.wait())
    assert client.riglm.is_stuck


async def test_a_client_that_reads_no_more_does_not_hold_up_the_end(connect: Connect, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stdio, "_FLUSH_SECONDS", 0.05)
    client = await connect(limit=64 << 20)
    await client.write(request("initialize"))
    await client.read()
    client.inside.talks[0].channel.push(jsonrpc.notification("notifications/x", b'"%b"' % (b"x" * 600_000)))
    await within(client.riglm.close(), 5)


async def test_a_full_disk_ends_the_client_with_a_reason(caplog: pytest.LogCaptureFixture):
    source, up = os.pipe()
    client = await Client(Inside(), up, -1, source, os.open("/dev/full", os.O_WRONLY)).open()
    with caplog.at_level(logging.INFO):
        await client.write(request("echo"), request("echo"))
        await within(client.gone.wait())
    assert [record.reason for record in caplog.records] == ["No space left on device"]  # type: ignore[attr-defined]
    await client.close()
