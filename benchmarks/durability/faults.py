"""What befalls a store, each as a block during which it lasts."""

import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

from tests.stores.postgres import PostgresServer

from benchmarks.durability.finding import CannotRun
from benchmarks.durability.stores import Store

_FULL_BYTES = 8 << 20
_LARGE = "size=256m"

Fault = Callable[[Store, int], AbstractContextManager[None]]


@contextmanager
def none(_store: Store, _pid: int) -> Iterator[None]:
    """Nothing befalls it: what is late now is late because of the machine."""
    yield


@contextmanager
def locked(store: Store, _pid: int) -> Iterator[None]:
    """Another process holds the SQLite database."""
    assert store.file is not None
    with closing(sqlite3.connect(store.file, isolation_level=None, timeout=30)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def full(store: Store, _pid: int) -> Iterator[None]:
    """Nothing more fits beside the SQLite database, which is on a file system of its own; then that grows."""
    assert store.file is not None
    filler = store.file.parent / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    yield
    _mounted("-o", f"remount,{_LARGE}", str(store.file.parent))
    filler.unlink()


@contextmanager
def eio(store: Store, pid: int) -> Iterator[None]:
    """Every write to the SQLite database fails."""
    with _injected(store, pid, "pwrite64:error=EIO"):
        yield


@contextmanager
def slow(store: Store, pid: int) -> Iterator[None]:
    """Every write to the SQLite database takes 200 ms."""
    with _injected(store, pid, "pwrite64:delay_enter=200000"):
        yield


@contextmanager
def stopped(store: Store, _pid: int) -> Iterator[None]:
    """PostgreSQL or ClickHouse ends at once, and is started again."""
    assert store.server is not None
    store.server.stop()
    yield
    store.server.start()


@contextmanager
def frozen(store: Store, _pid: int) -> Iterator[None]:
    """All processes of PostgreSQL are stopped where they are: connections stay, and nothing is answered."""
    assert isinstance(store.server, PostgresServer)
    store.server.freeze()
    try:
        yield
    finally:
        store.server.thaw()


FAULTS: dict[str, tuple[str, Fault]] = {
    "none": ("sqlite", none),
    "locked": ("sqlite", locked),
    "full": ("sqlite", full),
    "eio": ("sqlite", eio),
    "slow": ("sqlite", slow),
    "stopped": ("postgresql", stopped),
    "frozen": ("postgresql", frozen),
    "clickhouse": ("clickhouse", stopped),
}
"""Each fault with the kind of store that it befalls."""


@contextmanager
def small_disk(directory: Path) -> Iterator[Path]:
    """A file system of 8 MiB.

    Raises:
        CannotRun: only root can make one.
    """
    if os.geteuid() != 0:
        raise CannotRun("a full disk needs a small file system, which only root can mount: run this one as root")
    place = directory / "small"
    place.mkdir()
    _mounted("-t", "tmpfs", "-o", f"size={_FULL_BYTES}", "tmpfs", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False)


def _mounted(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotRun(f"mount {' '.join(words)}: {done.stderr.strip()}")


@contextmanager
def _injected(store: Store, pid: int, injection: str) -> Iterator[None]:
    """Tamper with calls of the system on the database's files, in all threads but the one that answers clients."""
    if shutil.which("strace") is None:
        raise CannotRun("this fault is made by strace, which is not installed")
    assert store.file is not None
    threads = [task.name for task in Path(f"/proc/{pid}/task").iterdir() if task.name != str(pid)]
    files = [f"{store.file}{suffix}" for suffix in ("", "-wal", "-shm", "-journal")]
    command = ["strace", "-qq", "-o", os.devnull, "-e", "trace=pwrite64", "-e", f"inject={injection}"]
    for option, values in (("-P", files), ("-p", threads)):
        for value in values:
            command += [option, value]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(1)
        if tracer.poll() is not None:
            raise CannotRun(f"strace: {tracer.stderr.read().strip() if tracer.stderr else ''}")
        yield
    finally:
        tracer.terminate()
        tracer.wait(30)
        if tracer.stderr:
            tracer.stderr.close()
