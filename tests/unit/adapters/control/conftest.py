"""The control API on a loopback socket and a separate thread, over a proxy with one session, one tool and no server."""

import asyncio
import http.client
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from riglm.adapters.control.app import create_app
from riglm.adapters.control.server import ControlServer
from riglm.adapters.control.tokens import FILE_NAME, TokenFile, Tokens
from riglm.adapters.mcp.downstream.http import bound_socket
from riglm.domain.invocation import ErrorKind
from riglm.domain.schemas.downstream import ControlSettings
from tests.records import a_session, a_tool_pin, an_exposure, an_invocation
from tests.unit.application.control.parts import Configuration, GatedStore, LoopThread, make_running_proxy
from tests.waiting import WAIT_SECONDS

SESSION = UUID("01981a00-0000-7000-8000-000000000001")
OVERRIDE = UUID("01981a00-0000-7000-8000-0000000000aa")
NOON = 1_780_000_000.5
DIGEST = "b" * 64


class Answer(NamedTuple):
    """One answer; names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def problem(self) -> Any:
        """The problem document that it is, checked as far as all have it in common."""
        assert self.headers["content-type"] == "application/problem+json"
        document = json.loads(self.body)
        assert document["status"] == self.status
        assert document["type"] == "about:blank"
        assert document["title"]
        assert document["detail"]
        return document


class Served:
    """A control API that runs."""

    def __init__(self, tokens: TokenFile, **control: Any) -> None:
        self.tokens = tokens
        self.loop_thread = LoopThread()
        self.loop_thread.__enter__()
        self.store = GatedStore()
        self.proxy = self.loop_thread.run(lambda: make_running_proxy(self.store, started_at=NOON))
        settings = ControlSettings.model_validate({"enabled": True, **control})
        self._listener = bound_socket("127.0.0.1", 0)
        self.port: int = self._listener.getsockname()[1]
        self.host = f"127.0.0.1:{self.port}"
        self._server = ControlServer(
            self._listener,
            lambda: create_app(
                self.proxy, settings, Tokens(settings, tokens), lambda _: (b"up 1\n", "text/plain"), version="1"
            ),
        )
        self._server.start()

    def ask(self, method: str, path: str, body: Any = None, **headers: str | None) -> Answer:
        """Ask on a connection of its own; an underscore in a header's name stands for a dash, None leaves one out."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_SECONDS)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            if "host" not in given:
                connection.putheader("Host", self.host)
            content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            if body is not None and "content-type" not in given:
                connection.putheader("Content-Type", "application/json")
            for name, value in given.items():
                if value is not None:
                    connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(content)))
            connection.endheaders(content)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    def raw(self, request: bytes) -> bytes:
        """What comes back for these bytes, until the end."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_SECONDS) as connection:
            connection.sendall(request)
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))

    def fill(self) -> None:
        """Record a session that called a tool, and a changed tool."""
        session = a_session(id=SESSION, started_at=NOON)
        call = an_invocation(session, "docs/read", timestamp=NOON, success=False, error_kind=ErrorKind.TOOL)
        change = a_tool_pin(seen_digest=DIGEST, seen=b'{"name":"read","title":"new"}')
        self.store.record_many([session, call, an_exposure(session, "docs/read", hidden=("a", "b")), change])

    def reset(self) -> None:
        """Go back to the first configuration, and remove all overrides."""
        self.proxy.configuration = Configuration()
        for each in self.store.list_overrides():
            self.store.delete_override(each.id)

    def stop(self) -> None:
        """End the server."""
        asyncio.run(self._server.stop())

    def end(self) -> None:
        self.stop()
        self.proxy.close()
        self.loop_thread.__exit__()


Serve = Callable[..., Served]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts control APIs, with the settings that it is given."""
    started: list[Served] = []

    def start(**control: Any) -> Served:
        started.append(Served(TokenFile(tmp_path / FILE_NAME), **control))
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.fixture(scope="module")
def _started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(TokenFile(tmp_path_factory.mktemp("control") / FILE_NAME))
    served.fill()
    yield served
    served.end()


@pytest.fixture
def served(_started: Served) -> Served:
    """One that needs no token, with its first configuration and without overrides."""
    _started.reset()
    return _started
