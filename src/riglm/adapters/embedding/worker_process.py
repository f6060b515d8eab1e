"""Riglm's side of the embedding process."""

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Self, TypeVar

from riglm.adapters.embedding.frames import Load, Loaded, Message, Refused, receive, send
from riglm.adapters.embedding.reporting import NOTHING_REPORTED
from riglm.adapters.embedding.shared_server import SharedServer
from riglm.ports.embedder import EmbedderUnavailable

_T = TypeVar("_T", bound=Message)
_GRACE_SECONDS: Final = 1.0
_ENVIRONMENT: Final = NOTHING_REPORTED | {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
}
_SERVER_VARIABLES: Final = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "PYTHONHOME", "PYTHONPATH", "TMPDIR")


class WorkerCrashed(EmbedderUnavailable):
    """The embedding process ended by itself."""


class WorkerSilent(EmbedderUnavailable):
    """The embedding process did not answer in time."""


class NothingLoaded(EmbedderUnavailable):
    """None of the models can be loaded; the message has the reason for each."""


class WorkerProcess:
    """A connection to an embedding process, which is private or a server that other riglm processes use as well.

    Either runs in a separate process session, so that no terminal signal reaches it. One thread at a time sends a
    request; any thread may kill the connection, and the one that waits for a response gets `WorkerCrashed`.
    """

    def __init__(
        self, link: socket.socket, process: "subprocess.Popen[bytes] | None", give_up: Callable[[], None]
    ) -> None:
        """`process` is the one that this riglm owns; `give_up` is called when there is no response."""
        self._link = link
        self._process = process
        self._give_up = give_up

    @classmethod
    def start(cls) -> Self:
        """Start a process for this riglm alone.

        Raises:
            WorkerCrashed: it cannot be started.
        """
        link, theirs = socket.socketpair()
        with theirs:
            try:
                return cls(link, _start(theirs, os.environ), lambda: None)
            except OSError as error:
                link.close()
                raise WorkerCrashed(f"the embedding process cannot be started: {error}") from error

    @classmethod
    def join(cls, server: SharedServer) -> Self:
        """Connect to the server that all riglm processes of this user share, which is started if there is none.

        It gets none of the credentials in this process's environment, which may differ from those of other clients.

        Raises:
            OSError: there can be no such server here.
        """
        environment = {name: os.environ[name] for name in _SERVER_VARIABLES if name in os.environ}
        link, remove = server.connect(lambda listener, path: _detach(_start(listener, environment, str(path))))
        return cls(link, None, remove)

    @property
    def pid(self) -> int | None:
        """The process id of the private process while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def has_ended(self) -> bool:
        """True if the process has disconnected, as it does after a time without a request; asked between requests."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._link, selectors.EVENT_READ)
            return bool(selector.select(0))

    def load(self, models: tuple[str, ...], directory: Path, *, idle: float, seconds: float) -> Loaded:
        """Load the first of the models that can be.

        Raises:
            NothingLoaded: none can.
            EmbedderUnavailable: it crashed, or took longer than `seconds`.
        """
        answer = self._exchange(Load(models=models, directory=str(directory.absolute()), idle=idle), seconds)
        if isinstance(answer, Refused):
            reasons = "; ".join(each.reason for each in answer.passed_over)
            raise NothingLoaded(reasons or answer.reason)
        return self._expected(answer, Loaded)

    def ask(self, request: Message, expected: type[_T], seconds: float) -> _T:
        """The answer to a request.

        Raises:
            EmbedderUnavailable: it refused, crashed, or took longer than `seconds`.
        """
        answer = self._exchange(request, seconds)
        if isinstance(answer, Refused):
            raise EmbedderUnavailable(f"the model refused a text: {answer.reason}")
        return self._expected(answer, expected)

    def kill(self) -> None:
        """Disconnect now, and end the process if it is private; from any thread."""
        # The socket is shut, not closed: another thread may be reading from it.
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def close(self) -> None:
        """Let the process end by itself, kill it if it does not, and close the connection. No thread may be asking."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE_SECONDS)
        self.kill()
        self._link.close()

    def _exchange(self, request: Message, seconds: float) -> Message:
        deadline = time.monotonic() + seconds
        try:
            send(self._link, request, deadline)
            answer = receive(self._link, deadline)
        except TimeoutError:
            self._give_up()
            self.kill()
            raise WorkerSilent(f"the embedding process did not answer within {seconds:g} s") from None
        except (OSError, ValueError) as error:
            self._give_up()
            raise WorkerCrashed(f"the embedding process broke off: {error}") from error
        if answer is None:
            self._give_up()
            raise WorkerCrashed("the embedding process ended")
        return answer

    @staticmethod
    def _expected(answer: Message, kind: type[_T]) -> _T:
        if not isinstance(answer, kind):
            raise WorkerCrashed(f"the embedding process answered with {type(answer).__name__}")
        return answer


def _start(link: socket.socket, environment: Mapping[str, str], *arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        # -P: a module of the user's directory must not replace a library.
        [sys.executable, "-P", "-m", "riglm.adapters.embedding.worker", *arguments],
        stdin=link.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**environment, **_ENVIRONMENT},
        start_new_session=True,
    )


def _detach(process: "subprocess.Popen[bytes]") -> None:
    """Reap the process that a server detaches from, as soon as it has ended."""
    threading.Thread(target=process.wait, name="riglm-embedder-start", daemon=True).start()
