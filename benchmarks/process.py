"""Programs that a benchmark starts, and ends."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

_POLL_SECONDS = 0.02


class StartFailed(Exception):
    """A program ended, or did not get ready in time; the message holds its last words."""


class Process:
    """A program in a process group of its own, so that all of it ends with `stop`. What it says goes to a log."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        pipes: bool = False,
    ) -> None:
        """Start it; with `pipes` its input and output are `popen.stdin` and `popen.stdout`, not buffered."""
        self.log = log
        with log.open("ab") as said:
            self.popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else said,
                stderr=said,
                env=environment,
                cwd=directory,
                bufsize=0,
                start_new_session=True,
            )
        self.pid = self.popen.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_until(self, is_ready: Callable[[], bool], seconds: float = 40) -> None:
        """Wait until it is ready.

        Raises:
            StartFailed: it has ended, or the time is over.
        """
        deadline = time.monotonic() + seconds
        while not is_ready():
            if self.popen.poll() is not None:
                raise StartFailed(f"ended with code {self.popen.returncode}: {self.last_words()}")
            if time.monotonic() > deadline:
                raise StartFailed(f"not ready after {seconds:g} s: {self.last_words()}")
            time.sleep(_POLL_SECONDS)

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-2000:].strip()

    def stop(self, grace: float = 5) -> None:
        """Ask the group to go, and kill it when it has not gone after `grace` seconds."""
        for stream in (self.popen.stdin, self.popen.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.popen.wait(grace)
                break
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def free_port() -> int:
    """A port that nobody listened on a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def listens(port: int) -> bool:
    """Whether something takes connections on this port."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
