"""The actors: a server, a store, a shared state, and several riglm processes; all on loopback."""

import contextlib
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.stores import valkey
from tests.stores.postgres import Databases, PostgresServer

from benchmarks.process import Process, free_port

_SERVER = Path(__file__).parents[2] / "tests" / "interaction" / "servers" / "scripted.py"
_SECRET = "only-for-this-benchmark-" + "x" * 16


class Riglms:
    """Several `riglm serve` in front of one server, with one store and one state."""

    def __init__(self, ports: dict[str, int], processes: list[Process], state: valkey.ValkeyServer) -> None:
        self.ports = ports
        """By the names of the processes, with which session ids begin."""
        self.state = state
        self._processes = processes

    def kill(self, number: int) -> None:
        """End a process at once."""
        os.kill(self._processes[number].pid, signal.SIGKILL)

    def stop(self) -> None:
        """End all, with the time that they need to write what they know."""
        for process in self._processes:
            process.stop(grace=30)


@contextlib.contextmanager
def database() -> Iterator[str]:
    """The URL of an empty database of a PostgreSQL of our own, which syncs as it does by default."""
    with PostgresServer(fsync="on") as server:
        databases = Databases(server.url_of("postgres"))
        with databases.migrated() as url:
            yield url
        databases.close()


@contextlib.contextmanager
def riglms(count: int, store_url: str, directory: Path, settings: Mapping[str, str]) -> Iterator[Riglms]:
    """So many riglm processes that serve; without a store's URL each records in a file of its own.

    What `settings` leaves empty is not set at all.
    """
    with contextlib.ExitStack() as stack:
        state = stack.enter_context(valkey.own_server())
        server = stack.enter_context(_server(directory))
        shared = {
            **os.environ,
            "RIGLM_STORAGE__URL": store_url,
            "RIGLM_STATE__URL": state.url,
            "RIGLM_PRIVACY__KEY": _SECRET,
            "RIGLM_PRIVACY__ARGUMENTS": "raw",
            "RIGLM_EMBEDDER__PROVIDER": "static",
            **settings,
        }
        shared = {name: value for name, value in shared.items() if value}
        ports, processes = {}, []
        for number in range(count):
            port, name = free_port(), f"process-{number}"
            own = {**shared, "RIGLM_DATA_DIR": str(directory / f"data-{number}"), "RIGLM_DOWNSTREAM__PROCESS": name}
            command = [sys.executable, "-m", "riglm", "serve", "--port", str(port), "--url", server]
            process = stack.enter_context(Process(command, directory / f"riglm-{number}.log", environment=own))
            process.wait_until(lambda port=port: _listens(port))  # type: ignore[misc]
            ports[name] = port
            processes.append(process)
        yield Riglms(ports, processes, state)


@contextlib.contextmanager
def _server(directory: Path) -> Iterator[str]:
    """The URL of an MCP server that counts the calls of each session."""
    command = [sys.executable, str(_SERVER), "--transport", "http", "--lifetime", "3600"]
    with Process(command, directory / "server.log", pipes=True) as server:
        assert server.popen.stdout is not None
        ready, _, _ = select.select([server.popen.stdout], [], [], 30)
        said = server.popen.stdout.readline() if ready else b""
        port = int("".join(filter(str.isdigit, said.decode().partition("port")[2].partition(",")[0])))
        server.wait_until(lambda: _listens(port))
        yield f"http://127.0.0.1:{port}/mcp"


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
