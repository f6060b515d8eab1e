import asyncio
import contextlib
import socket
import threading
import time

import pytest

from riglm.adapters.control import connection
from riglm.adapters.control.connection import MOST_CONNECTIONS
from riglm.adapters.control.server import ControlServer
from tests.unit.adapters.control.conftest import PATIENCE, Serve, Served


def connected(served: Served, sent: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE)
    made.sendall(sent)
    return made


@pytest.mark.parametrize("sent", [b"", b"GET /health HT", b"PUT /config HTTP/1.1\r\nContent-Length: 9\r\n"])
def test_whoever_dawdles_is_cut_off(serve: Serve, monkeypatch: pytest.MonkeyPatch, sent: bytes):
    monkeypatch.setattr(connection, "ANSWER_SECONDS", 0.1)
    served = serve()
    assert served.ask("GET", "/health").status == 200
    with connected(served, sent) as slow, contextlib.suppress(ConnectionResetError):
        assert slow.recv(1 << 16) == b""


def test_connections_beyond_the_most_are_refused_and_free_places_taken_again(serve: Serve):
    served = serve()
    crowd = [connected(served, b"GET /health HT") for _ in range(MOST_CONNECTIONS)]
    statuses = {served.ask("GET", "/health").status for _ in range(3)}
    assert statuses == {503}
    for each in crowd:
        each.close()
    until = time.monotonic() + PATIENCE
    while served.ask("GET", "/health").status != 200:
        assert time.monotonic() < until


def test_it_ends_whatever_is_going_on(serve: Serve):
    served = serve()
    asked = threading.Event()
    cancelled = threading.Event()

    async def hang(*_: object, **__: object) -> None:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    served.inside.health = hang  # type: ignore[assignment, method-assign]
    head = f"GET /health HTTP/1.1\r\nHost: {served.host}\r\n\r\n".encode()
    with connected(served, head) as waiting, connected(served, b"GET") as dawdling, connected(served) as idle:
        assert asked.wait(PATIENCE)
        served.end()
        assert cancelled.wait(PATIENCE)
        for each in (waiting, dawdling, idle):
            with contextlib.suppress(ConnectionResetError):
                each.recv(1)
    with pytest.raises(OSError, match="refused"):
        connected(served)


async def test_an_application_that_cannot_be_built_ends_alone(caplog: pytest.LogCaptureFixture):
    listener = socket.create_server(("127.0.0.1", 0))

    def broken() -> None:
        raise RuntimeError("no application")

    running = ControlServer(listener, broken)  # type: ignore[arg-type]
    running.start()
    async with asyncio.timeout(PATIENCE):
        while "goes on without it" not in caplog.text:
            await asyncio.sleep(0.01)
        await running.stop()
    assert listener.fileno() == -1


async def test_a_server_that_was_not_started_ends_as_well():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        await ControlServer(listener, lambda: None).stop()  # type: ignore[arg-type, return-value]
