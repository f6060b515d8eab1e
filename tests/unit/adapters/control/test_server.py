import asyncio
import contextlib
import socket
import threading

import pytest

from riglm.adapters.control import server
from riglm.adapters.control.server import MAX_CONNECTIONS, ControlServer
from riglm.application.control import statistics
from tests.unit.adapters.control.conftest import Serve, Served
from tests.waiting import WAIT_SECONDS, wait_until, wait_until_async


def connected(served: Served, sent: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", served.port), timeout=WAIT_SECONDS)
    made.sendall(sent)
    return made


@pytest.mark.parametrize("sent", [b"", b"GET /health HT", b"PUT /config HTTP/1.1\r\nContent-Length: 9\r\n"])
def test_a_slow_connection_is_closed(serve: Serve, monkeypatch: pytest.MonkeyPatch, sent: bytes):
    monkeypatch.setattr(server, "ANSWER_SECONDS", 0.1)
    served = serve()
    assert served.ask("GET", "/health").status == 200
    with connected(served, sent) as slow, contextlib.suppress(ConnectionResetError):
        assert slow.recv(1 << 16) == b""


@pytest.mark.parametrize("sent", [b"", b"GET /health HT"])
def test_idle_connections_keep_no_request_out(serve: Serve, sent: bytes):
    served = serve()
    crowd = [connected(served, sent) for _ in range(MAX_CONNECTIONS + 5)]
    assert [served.ask("GET", "/health").status for _ in range(3)] == [200] * 3
    for each in crowd:
        each.close()


def test_connections_beyond_the_most_are_refused_while_all_are_busy_and_free_places_taken_again(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
):
    served = serve()
    asked = threading.Semaphore(0)

    async def hang(*_: object, **__: object) -> None:
        asked.release()
        await asyncio.Event().wait()

    monkeypatch.setattr(statistics, "get_health", hang)
    head = f"GET /health HTTP/1.1\r\nHost: {served.host}\r\n\r\n".encode()
    crowd = [connected(served, head) for _ in range(MAX_CONNECTIONS)]
    for _ in crowd:
        assert asked.acquire(timeout=WAIT_SECONDS)
    refused = served.ask("GET", "/ready")
    found = (refused.problem["status"], refused.headers["retry-after"], refused.headers["connection"])
    assert found == (503, "2", "close")
    crowd[0].close()
    wait_until(lambda: served.ask("GET", "/ready").status == 200)
    for each in crowd:
        each.close()


@pytest.mark.parametrize("asked", ["PUT /config", "GET /health"])
def test_what_is_cut_off_at_the_end_is_no_failure(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, asked: str
):
    served = serve()
    entered = threading.Event()

    async def hang(*_: object, **__: object) -> None:
        entered.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(statistics, "get_health", hang)
    head = f"{asked} HTTP/1.1\r\nHost: {served.host}\r\nContent-Type: application/json\r\n"
    with connected(served, f"{head}Content-Length: 90\r\n\r\n{{".encode()):
        if asked.startswith("GET"):
            assert entered.wait(WAIT_SECONDS)
        else:
            assert served.ask("GET", "/ready").status == 200
        served.stop()
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


async def test_an_application_that_cannot_be_built_ends_alone(caplog: pytest.LogCaptureFixture):
    listener = socket.create_server(("127.0.0.1", 0))

    def broken() -> None:
        raise RuntimeError("no application")

    running = ControlServer(listener, broken)  # type: ignore[arg-type]
    running.start()
    await wait_until_async(lambda: "goes on without it" in caplog.text)
    async with asyncio.timeout(WAIT_SECONDS):
        await running.stop()
    assert listener.fileno() == -1
