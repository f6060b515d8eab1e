"""A riglm with a control API as users start it, with a server behind it and clients in front."""

import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from mcp import Client

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.ports.analytics import Record
from tests.integration.past import definitions, listing_server
from tests.interaction.stage import Process
from tests.started import free_port
from tests.waiting import WAIT_SECONDS

WRITE_TOKEN: Final = "write-0123456789abcdef"
READ_TOKEN: Final = "read-fedcba9876543210"
PATIENCE: Final = WAIT_SECONDS


class Answer(NamedTuple):
    """One answer; names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Controlled:
    """Where clients and people find it, and what it said."""

    def __init__(self, process: Process, ports: tuple[int, int], folder: Path) -> None:
        self.process = process
        self.mcp = f"http://127.0.0.1:{ports[0]}/mcp"
        self.control = f"http://127.0.0.1:{ports[1]}"
        self.folder = folder

    @property
    def log(self) -> str:
        """All that it logged so far."""
        return self.process.stderr.read_text(errors="replace")

    def ask(
        self, method: str, path: str, body: Any = None, *, token: str | None = WRITE_TOKEN, **headers: str
    ) -> Answer:
        """Ask the control API; an underscore in a header's name stands for a dash."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            given["authorization"] = f"Bearer {token}"
        content = None
        if body is not None:
            given.setdefault("content-type", "application/json")
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection = HTTPConnection(urlsplit(self.control).netloc, timeout=PATIENCE)
        try:
            connection.request(method, path, content, given)
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): text for name, text in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[Client]:
        """A client of the handshake era, whose lists may change."""
        async with Client(self.mcp, mode="legacy", read_timeout_seconds=PATIENCE, **options) as client:
            yield client


@contextlib.contextmanager
def controlled(
    folder: Path,
    *,
    past: list[Record] | None = None,
    settings: Mapping[str, str] | None = None,
    configuration: str | None = None,
) -> Iterator[Controlled]:
    """`riglm serve --control` with both tokens, over a store with a `past`.

    `settings` are environment variables without `RIGLM_`; an empty one is not set at all. A `configuration` is the text
    of its file, in which the server must stand then.
    """
    data = folder / "data"
    data.mkdir(exist_ok=True)
    if past:
        with SqlAnalytics(f"sqlite:///{data / 'riglm.db'}") as store:
            store.record_many(past)
    (folder / "tools.json").write_text(definitions())
    ports = free_port(), free_port()
    command = [sys.executable, "-m", "riglm", "serve", "--port", str(ports[0]), "--control-port", str(ports[1])]
    if configuration is None:
        command += ["--", *listing_server(folder / "tools.json")]
    else:
        (folder / "riglm.yaml").write_text(configuration)
        command += ["--config", str(folder / "riglm.yaml")]
    kept = {name: content for name, content in os.environ.items() if not name.startswith("RIGLM_")}
    own = {
        "DATA_DIR": str(data),
        "EMBEDDER__PROVIDER": "static",
        "FILTERING__COVERAGE": "0.9",  # definitions are so short that hiding them does not pay
        "CONTROL__TOKEN": WRITE_TOKEN,
        "CONTROL__READ_TOKEN": READ_TOKEN,
        **(settings or {}),
    }
    environment = {f"RIGLM_{name}": content for name, content in own.items() if content}
    process = Process(command, {**kept, **environment}, folder / "stderr")
    try:
        for port in ports:
            process.wait_for_port(port)
        yield Controlled(process, ports, folder)
    finally:
        process.end(signal.SIGTERM)
