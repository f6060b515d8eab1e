"""Riglm's side of the embedding process."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, TypeVar

from riglm.adapters.embedding.frames import Load, Loaded, Message, Refused, receive, send
from riglm.adapters.embedding.reporting import NOTHING_REPORTED
from riglm.ports.embedder import EmbedderUnavailable

_T = TypeVar("_T", bound=Message)
_GRACE_SECONDS: Final = 1.0
_ENVIRONMENT: Final = NOTHING_REPORTED | {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
}


class WorkerCrashed(EmbedderUnavailable):
    """The embedding process ended by itself."""


class WorkerSilent(EmbedderUnavailable):
    """The embedding process did not answer in time."""


class NothingLoaded(EmbedderUnavailable):
    """None of the models can be loaded; the message says why for each."""


class WorkerProcess:
    """One embedding process, started at once, in a session of its own so that no signal of the terminal reaches it.

    One thread at a time asks it; any thread may kill it, and the one that waits for an answer hears of it.
    """

    def __init__(self) -> None:
        """Start the process.

        Raises:
            WorkerCrashed: it cannot be started.
        """
        self._link, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    # -P: a module of the user's directory must not stand in for a library.
                    [sys.executable, "-P", "-m", "riglm.adapters.embedding.worker"],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=os.environ | _ENVIRONMENT,
                    start_new_session=True,
                )
            except OSError as error:
                self._link.close()
                raise WorkerCrashed(f"the embedding process cannot be started: {error}") from error

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def load(self, models: tuple[str, ...], directory: Path, seconds: float) -> Loaded:
        """Load the first of the models that can be.

        Raises:
            NothingLoaded: none can.
            EmbedderUnavailable: it crashed, or took longer than `seconds`.
        """
        answer = self._exchange(Load(models=models, directory=str(directory)), seconds)
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
        """End it now, from any thread."""
        # The socket is shut, not closed: another thread may be reading from it.
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def close(self) -> None:
        """Let it end by itself, kill it if it does not, and give back what is held of it. Nobody may be asking."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
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
            self.kill()
            raise WorkerSilent(f"the embedding process did not answer within {seconds:g} s") from None
        except (OSError, ValueError) as error:
            raise WorkerCrashed(f"the embedding process broke off: {error}") from error
        if answer is None:
            raise WorkerCrashed("the embedding process ended")
        return answer

    @staticmethod
    def _expected(answer: Message, kind: type[_T]) -> _T:
        if not isinstance(answer, kind):
            raise WorkerCrashed(f"the embedding process answered with {type(answer).__name__}")
        return answer
