"""A client that stops reading makes its servers wait, as it would without riglm, and loses nothing."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import WAIT_SECONDS

pytestmark = pytest.mark.timeout(120)

_LINE_BYTES = 60_000
_ITSELF = {"name": "client", "version": "1"}
_MOST_TAKEN = 64 << 20
_MOST_GROWTH_KB = 160 << 10

_SERVER = f"""
import json, os, select, sys

def say(message):
    view = memoryview(json.dumps(dict(message, jsonrpc="2.0")).encode() + b"\\n")
    while view:
        try:
            view = view[os.write(1, view):]
        except BlockingIOError:
            if not select.select([], [1], [], 1.0)[1]:
                tell(said)
                select.select([], [1], [])

def tell(count):
    global told
    if not told:
        told = True
        with open(sys.argv[1], "w") as other:
            other.write(str(count))

said, told = 0, False
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    if asked["method"] == "initialize":
        itself = {{"name": "server", "version": "1"}}
        result = {{"protocolVersion": "2025-11-25", "capabilities": {{"tools": {{}}}}, "serverInfo": itself}}
    else:
        result = {{}}
    if asked["method"] == "tools/call":
        os.set_blocking(1, False)
        for number in range(asked["params"]["arguments"]["lines"]):
            data = [number, "x" * {_LINE_BYTES}]
            say({{"method": "notifications/message", "params": {{"level": "info", "data": data}}}})
            said += {_LINE_BYTES}
        tell(said)
    say({{"id": asked["id"], "result": result}})
    if asked["method"] == "tools/call" and asked["params"]["arguments"]["leave"]:
        sys.exit()
"""


class Client:
    """A client that reads when it is told to."""

    def __init__(self, directory: Path) -> None:
        self.told = directory / "told"
        os.mkfifo(self.told)
        (directory / "server.py").write_text(_SERVER, "utf-8")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RIGLM_")}
        server = [sys.executable, "-I", "-S", "server.py", str(self.told)]
        self.riglm = subprocess.Popen(
            [sys.executable, "-m", "riglm", "run", "--no-filter", "--", *server],
            cwd=directory,
            env=environment | {"RIGLM_DATA_DIR": str(directory / "data")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def ask(self, key: int, method: str, **params: Any) -> None:
        assert self.riglm.stdin is not None
        message = {"jsonrpc": "2.0", "id": key, "method": method, "params": params}
        self.riglm.stdin.write(json.dumps(message).encode() + b"\n")
        self.riglm.stdin.flush()

    def read(self) -> Any:
        assert self.riglm.stdout is not None
        return json.loads(self.riglm.stdout.readline())

    def memory_kb(self, name: str) -> int:
        """A line of what the system says of riglm's memory."""
        status = Path(f"/proc/{self.riglm.pid}/status").read_text("utf-8").splitlines()
        return next(int(line.split()[1]) for line in status if line.startswith(f"{name}:"))

    def close(self) -> None:
        for stream in (self.riglm.stdin, self.riglm.stdout):
            if stream is not None:
                stream.close()
        try:
            self.riglm.wait(WAIT_SECONDS)
        finally:
            self.riglm.kill()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    client = Client(tmp_path)
    try:
        client.ask(0, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=_ITSELF)
        assert client.read()["id"] == 0
        yield client
    finally:
        client.close()


@pytest.mark.parametrize(("lines", "leave"), [(1_500, False), (1_500, True)])
def test_a_server_that_floods_a_client_that_does_not_read_has_to_wait_and_nothing_is_lost(
    client: Client, lines: int, leave: bool
) -> None:
    before = client.memory_kb("VmRSS")
    client.ask(1, "tools/call", name="flood", arguments={"lines": lines, "leave": leave})
    # The server tells when it could write nothing for a second, or had written all.
    assert int(client.told.read_text("utf-8")) < _MOST_TAKEN
    if not leave:
        client.ask(2, "ping")
    for number in range(lines):
        assert client.read()["params"]["data"][0] == number
    assert client.read() == {"jsonrpc": "2.0", "id": 1, "result": {}}
    if not leave:
        assert client.read() == {"jsonrpc": "2.0", "id": 2, "result": {}}
    assert client.memory_kb("VmHWM") - before < _MOST_GROWTH_KB
