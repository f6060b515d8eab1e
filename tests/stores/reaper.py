"""Ends a PostgreSQL server when whoever started this process is gone, however it went, and removes its directory.

Run with the server's directory; its standard input is a pipe that the starter holds and never writes to.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

DEADLINE_SECONDS = 60


def postmaster(directory: Path) -> int | None:
    """The process of the server, if it left a note of it."""
    try:
        return int((directory / "data" / "postmaster.pid").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def end(directory: Path) -> None:
    """Shut the server down at once, frozen or not, and remove all that it had."""
    pid = postmaster(directory)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGQUIT)  # it kills its children, those that are stopped too
            os.kill(pid, signal.SIGCONT)
        until = time.monotonic() + DEADLINE_SECONDS
        while is_alive(pid) and time.monotonic() < until:
            time.sleep(0.05)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    end(Path(sys.argv[1]))
