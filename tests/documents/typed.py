"""Shell blocks, run as somebody at a terminal would type them, and answered with yes where they ask."""

import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_PATIENCE_S = 100.0


@dataclass(frozen=True)
class Outcome:
    """What became of a block: the shell's exit code, and all that stood on the terminal."""

    block: str
    code: int
    output: str


def typed(block: str, directory: Path, environment: Mapping[str, str]) -> Outcome:
    """Run a block in a shell that stops at the first failure, on a terminal of its own; TimeoutError if it hangs."""
    ours, its = pty.openpty()
    shell = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", block],
        stdin=its,
        stdout=its,
        stderr=its,
        cwd=directory,
        env=dict(environment),
        start_new_session=True,
    )
    os.close(its)
    try:
        os.write(ours, b"y\n")
        output = _all_of(ours, time.monotonic() + _PATIENCE_S)
        return Outcome(block, shell.wait(timeout=_PATIENCE_S), output)
    finally:
        os.close(ours)
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()


def _all_of(terminal: int, deadline: float) -> str:
    read = bytearray()
    while True:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError(read.decode(errors="replace"))
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # how Linux says that nobody has the other end any more
            piece = b""
        if not piece:
            return read.decode(errors="replace").replace("\r\n", "\n")
        read += piece
