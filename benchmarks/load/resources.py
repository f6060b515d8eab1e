"""What a proxy's processes use: memory, processor time, files, children."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

UPSTREAM = "benchmarks.load.upstream"


def family(pid: int) -> Iterator[psutil.Process]:
    """A process and all that it started, except our upstreams."""
    with contextlib.suppress(psutil.Error):
        waiting = [psutil.Process(pid)]
        while waiting:
            process = waiting.pop()
            with contextlib.suppress(psutil.Error):
                if process.cmdline()[1:3] != ["-m", UPSTREAM]:
                    yield process
                    waiting += process.children()


def resident_mib(pid: int) -> float:
    """Resident memory of the family, in MiB."""
    total = 0
    for process in family(pid):
        with contextlib.suppress(psutil.Error):
            total += process.memory_info().rss
    return total / 2**20


def processor_seconds(pid: int) -> float:
    """Processor time of the family so far: to the nanosecond on Linux, to the tick elsewhere."""
    total = 0.0
    for process in family(pid):
        tasks = Path(f"/proc/{process.pid}/task")
        with contextlib.suppress(psutil.Error, OSError):
            if tasks.exists():
                total += sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9
            else:
                total += sum(process.cpu_times()[:2])
    return total


def open_files(pid: int) -> int:
    """How many file descriptors one process has open."""
    with contextlib.suppress(psutil.Error):
        return int(psutil.Process(pid).num_fds())
    return 0


def marked(variable: str, value: str) -> list[psutil.Process]:
    """All processes with this in the environment that they were started with, wherever they hang by now."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(variable) == value and _is_alive(process):
                found.append(process)
    return found


def _is_alive(process: psutil.Process) -> bool:
    return bool(process.status() != psutil.STATUS_ZOMBIE)
