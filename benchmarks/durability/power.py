"""The order that a loss of power would show: with `durability: full` nothing is acknowledged before it is synced."""

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from benchmarks.cache import CHECKOUT
from benchmarks.durability.finding import CannotRun, Finding
from riglm.adapters.analytics.sql import SqlAnalytics

_RATE = 300
_CALL = re.compile(rb"^\d+ +(?:<\.\.\. )?(\w+)(.*)")
_DONE = re.compile(rb"= 0$")


def power(where: str, seconds: float, directory: Path, notify: Callable[[str, int, int], None]) -> list[Finding]:
    """Watch the system calls of a writer whose records go into SQLite, or, while that is locked, into its spool.

    Raises:
        CannotRun: there is no strace.
    """
    if shutil.which("strace") is None:
        raise CannotRun("system calls are watched by strace, which is not installed")
    file, trace = directory / "riglm.db", directory / "trace"
    with SqlAnalytics(f"sqlite:///{file}"):
        pass
    watch = ["strace", "-f", "-qq", "-s", "16", "-e", "trace=write,pwrite64,fdatasync,fsync", "-o", str(trace)]
    writer = [sys.executable, "-m", "benchmarks.durability.writer", f"sqlite:///{file}", str(directory / "spool")]
    with _locked(file, held=where == "spool"):
        process = subprocess.Popen(
            [*watch, *writer, str(_RATE), "full"], cwd=CHECKOUT, stdout=subprocess.DEVNULL, start_new_session=True
        )
        try:
            for second in range(int(seconds)):
                notify(f"{where}: watched", second, int(seconds))
                time.sleep(1)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
    unsynced, synced = _acknowledged(trace)
    return [
        Finding(f"{where}: acknowledgements that follow a sync of their own", synced, least=10),
        Finding("acknowledgements without one", unsynced, most=0),
    ]


def _acknowledged(trace: Path) -> tuple[int, int]:
    """How often more was said to be safe with no sync of a file since it was said before, and how often with one."""
    found = [0, 0]
    syncs = 0
    for line in trace.read_bytes().splitlines():
        call = _CALL.match(line)
        if call is None:
            continue
        name, rest = call.groups()
        if name in {b"fdatasync", b"fsync"} and _DONE.search(rest):
            syncs += 1
        elif name == b"write" and rest.startswith(b'(1, "safe'):
            found[syncs > 0] += 1
            syncs = 0
    return found[0], found[1]


@contextmanager
def _locked(file: Path, *, held: bool) -> Iterator[None]:
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        if held:
            other.execute("BEGIN EXCLUSIVE")
        yield
