"""Both ends of a conversation: a sink that writes down what it hears, and a server that says just what a test wants."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from riglm.adapters.mcp.wire.http_client import HttpClient, HttpClientError, HttpExchange, HttpHeaders, Target
from tests.waiting import WAIT_SECONDS

PATIENCE = WAIT_SECONDS
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HEADERS = b"Content-Type: application/json\r\n"

T = TypeVar("T")


class Answer:
    """Hears one answer; `over` is set at its end."""

    def __init__(self) -> None:
        self.status = 0
        self.headers = HttpHeaders()
        self.chunks: list[bytes] = []
        self.failure: HttpClientError | None = None
        self.heard: list[str] = []
        self.over = asyncio.Event()
        self.began = asyncio.Event()
        self.got_data = asyncio.Event()

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    def head(self, status: int, headers: HttpHeaders) -> None:
        self._hear("head")
        self.status, self.headers = status, headers
        self.began.set()

    def data(self, chunk: bytes) -> None:
        self._hear("data")
        assert chunk
        self.chunks.append(chunk)
        self.got_data.set()

    def end(self) -> None:
        self._hear("end")
        self.over.set()

    def failed(self, failure: HttpClientError) -> None:
        self._hear("failed")
        self.failure = failure
        self.over.set()

    def _hear(self, what: str) -> None:
        assert not self.over.is_set(), f"{what} after the end"
        if not self.heard or self.heard[-1] != what:
            self.heard.append(what)

    async def complete(self) -> "Answer":
        """Wait for the end; it must be a good one."""
        await within(self.over.wait())
        assert self.failure is None, self.failure
        return self

    async def broken(self) -> HttpClientError:
        """Wait for the end; it must be a failure."""
        await within(self.over.wait())
        assert self.failure is not None, self.heard
        return self.failure


async def within(waiting: Awaitable[T]) -> T:
    async with asyncio.timeout(PATIENCE):
        return await waiting


class Request:
    """One request as a server read it."""

    def __init__(self, raw_head: bytes, body: bytes) -> None:
        self.raw = raw_head + body
        self.line, *lines = raw_head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        self.headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        self.body = body


class Caller:
    """A server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self.reader = reader
        self.writer = writer
        self.number = number

    async def request(self) -> Request | None:
        """The next request; None when the client closed the connection instead."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return Request(head, await self.reader.readexactly(length))

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def hang_up(self) -> None:
        """See the client close the connection; what it says before is dropped."""
        with suppress(ConnectionError):
            while await self.reader.read(65_536):
                pass

    def reset(self) -> None:
        """Close so that the client gets a reset instead of an end."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Script = Callable[[Caller], Awaitable[None]]


class Server:
    """A listening server; `callers` counts its connections, `requests` is the script's to fill."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.callers = 0
        self.requests: list[Request] = []
        self.port = 0
        self.scheme = "http"
        self.tasks: set[asyncio.Task[None]] = set()
        self.errors: list[BaseException] = []

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/mcp"

    @property
    def target(self) -> Target:
        return Target(self.url)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.callers += 1
        task = asyncio.create_task(self.converse(Caller(reader, writer, self.callers)))
        self.tasks.add(task)

        def over(_: asyncio.Task[None]) -> None:
            self.tasks.discard(task)
            writer.close()

        task.add_done_callback(over)

    async def converse(self, caller: Caller) -> None:
        try:
            await self.script(caller)
        except ConnectionError:
            pass
        except Exception as error:  # noqa: BLE001 - reported when the server is closed
            self.errors.append(error)

    async def settle(self) -> None:
        """Wait until every conversation is over."""
        while self.tasks:
            await within(asyncio.wait(self.tasks))


@asynccontextmanager
async def serving(script: Script, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server(script)
    listener = await asyncio.start_server(server.accept, "127.0.0.1", 0, ssl=tls, backlog=1024)
    server.port = listener.sockets[0].getsockname()[1]
    server.scheme = "https" if tls else "http"
    try:
        yield server
    finally:
        listener.close()
        for _ in range(5):  # connections that were accepted just before are still on their way to a task
            await asyncio.sleep(0)
            for task in server.tasks:
                task.cancel()
        await asyncio.gather(*server.tasks, return_exceptions=True)
        await listener.wait_closed()
    assert not server.errors


@asynccontextmanager
async def client_for(**options: object) -> AsyncIterator[HttpClient]:
    client = HttpClient(**{"environment": {}, **options})  # type: ignore[arg-type]
    try:
        yield client
    finally:
        await within(client.close())


def post(client: HttpClient, target: Target, body: bytes = b"{}") -> tuple[Answer, HttpExchange]:
    answer = Answer()
    return answer, client.send(target, b"POST", HEADERS, body, answer)


def answering(*answers: bytes) -> Script:
    """A script that gives one answer after the other, the last one for ever, whatever is asked."""

    async def script(caller: Caller) -> None:
        turn = 0
        while await caller.request() is not None:
            await caller.say(answers[min(turn, len(answers) - 1)])
            turn += 1

    return script


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
