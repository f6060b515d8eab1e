"""What the wire's smallest parts cost: a line, an event, an HTTP exchange over loopback.

    python benchmarks/wire.py [--json] [--beside aiohttp] [--beside httpx]

Lines and events: the best of several runs, in microseconds each. HTTP: a child process answers every POST with 100
bytes, on uvloop at both ends; `us` is the wall time of all exchanges divided by their number, `cpu us` this process's
own share, medians of several rounds. Libraries named by --beside are measured in the same way, if they are installed.
On shared cores believe ratios.
"""

import argparse
import asyncio
import importlib
import json
import subprocess
import sys
import time
import timeit
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import uvloop

from riglm.adapters.mcp.wire.event_stream import EventParser, encode_event
from riglm.adapters.mcp.wire.http_client import HttpClient, HttpClientError, HttpHeaders, Target
from riglm.adapters.mcp.wire.messages import LineSplitter, well_formed

MESSAGE = b'{"jsonrpc":"2.0","id":17,"result":{"content":[{"type":"text","text":"a call\'s usual answer"}]}}'
HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
ROUNDS = 5
EXCHANGES = 2_000

Row = dict[str, float | str]
Ask = Callable[[], Awaitable[None]]


def ignore(*_: object) -> None:
    """Where lines and events go."""


def parts() -> list[Row]:
    splitter = LineSplitter(ignore, ignore, 1 << 28)
    parser = EventParser(ignore, 1 << 28)
    parser.feed(b"data: first\n\n")
    crlf = b"event: message\r\ndata: " + MESSAGE + b"\r\n\r\n"
    named = b"id: 17\nevent: message\ndata: " + MESSAGE + b"\n\n"
    line, lines = MESSAGE + b"\n", (MESSAGE + b"\n") * 50
    large = [b"x" * 65_536] * 1_600 + [b"\n"]

    def feed_large() -> None:
        for chunk in large:
            splitter.feed(chunk)

    return [
        row("a line in one chunk", lambda: splitter.feed(line), 50_000),
        row("a line, 50 in one chunk", lambda: splitter.feed(lines), 2_000, 50),
        row("a line of 100 MiB in chunks of 64 KiB", feed_large, 1),
        row("well_formed of a line", lambda: well_formed(MESSAGE), 50_000),
        row("an event in one chunk", lambda: parser.feed(crlf), 50_000),
        row("an event with an id", lambda: parser.feed(named), 20_000),
        row("encode_event", lambda: encode_event(MESSAGE), 50_000),
    ]


def row(what: str, work: Callable[[], object], number: int, each: int = 1) -> Row:
    best = min(timeit.repeat(work, number=number, repeat=ROUNDS)) / number / each
    return {"what": what, "us": round(best * 1e6, 3)}


class Sink:
    """Gives the end of an answer to a future."""

    def __init__(self) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def head(self, status: int, headers: HttpHeaders) -> None:
        """Nothing to do."""

    def data(self, chunk: bytes) -> None:
        """Nothing to do."""

    def end(self) -> None:
        """The answer is there."""
        self.over.set_result(None)

    def failed(self, failure: HttpClientError) -> None:
        """The answer will not come."""
        self.over.set_exception(failure)


def ask_riglm(url: str, stack: AsyncExitStack) -> Ask:
    client, target = HttpClient(), Target(url)
    stack.push_async_callback(client.close)
    block = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items()).encode()

    async def ask() -> None:
        sink = Sink()
        client.send(target, b"POST", block, MESSAGE, sink)
        await sink.over

    return ask


async def ask_aiohttp(url: str, stack: AsyncExitStack) -> Ask:
    library = importlib.import_module("aiohttp")
    session = await stack.enter_async_context(library.ClientSession(connector=library.TCPConnector(limit=512)))

    async def ask() -> None:
        async with session.post(url, data=MESSAGE, headers=HEADERS) as answer:
            await answer.read()

    return ask


async def ask_httpx(url: str, stack: AsyncExitStack) -> Ask:
    library = importlib.import_module("httpx")
    client = await stack.enter_async_context(library.AsyncClient(limits=library.Limits(max_connections=512)))

    async def ask() -> None:
        await client.post(url, content=MESSAGE, headers=HEADERS)

    return ask


async def exchanges(client: str, url: str) -> list[Row]:
    async with AsyncExitStack() as stack:
        if client == "riglm":
            ask = ask_riglm(url, stack)
        else:
            ask = await {"aiohttp": ask_aiohttp, "httpx": ask_httpx}[client](url, stack)
        return [await load(client, ask, in_flight) for in_flight in (1, 16, 200)]


async def load(client: str, ask: Ask, in_flight: int) -> Row:
    async def one_after_the_other(count: int) -> None:
        for _ in range(count):
            await ask()

    count = EXCHANGES // in_flight
    results = []
    for _ in range(ROUNDS):
        start, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(one_after_the_other(count) for _ in range(in_flight)))
        results.append((time.perf_counter() - start, time.process_time() - cpu))
    wall, cpu = (sorted(result[i] for result in results)[ROUNDS // 2] / (count * in_flight) for i in (0, 1))
    what = f"{client}: an HTTP exchange, {in_flight} in flight"
    return {"what": what, "us": round(wall * 1e6, 1), "cpu us": round(cpu * 1e6, 1), "per second": round(1 / wall)}


class Echo(asyncio.Protocol):
    """The least that a keep-alive server can do: it takes every chunk with a body's end for one request."""

    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(MESSAGE) + MESSAGE

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """A request, or a part of it."""
        if data.endswith(MESSAGE):
            self.transport.write(self.answer)  # type: ignore[attr-defined] # the loop gives a full Transport


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", action="store_true", help="print the rows as JSON")
    options.add_argument("--beside", action="append", default=[], choices=["aiohttp", "httpx"])
    options.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.serve:
        uvloop.run(serve())
        return
    rows = parts()
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}/mcp"
        for client in ("riglm", *chosen.beside):
            rows += uvloop.run(exchanges(client, url))
        server.communicate()
    print(json.dumps(rows, indent=1) if chosen.json else table(rows))


def table(rows: list[Row]) -> str:
    head = f"{'':44}{'us':>12}{'cpu us':>10}{'per second':>12}"
    return "\n".join(
        [head, *(f"{r['what']:44}{r['us']:>12}{r.get('cpu us', ''):>10}{r.get('per second', ''):>12}" for r in rows)]
    )


if __name__ == "__main__":
    main()
