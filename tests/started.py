"""Starting, freezing and ending servers for tests and benchmarks."""

import contextlib
import ctypes
import os
import random
import signal
import socket

import psutil

from tests.waiting import wait_until

_PR_SET_PDEATHSIG = 1
_WORKERS = 16
_libc = ctypes.CDLL(None)


def free_port() -> int:
    """A port of loopback that nobody uses, and that nobody else takes before its server listens, or while it restarts.

    Each worker of the tests has ports of its own, all below those that the kernel gives to outgoing connections.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
    while True:
        port = random.randrange(10_000 + worker, 32_768, _WORKERS)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def die_with_the_starter() -> None:
    """Let this process be killed when the one that started it ends; for `preexec_fn`."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def freeze(process: psutil.Process) -> None:
    """Stop a process, and wait until it has: on a busy machine, its threads go on for a while after the signal."""
    process.suspend()
    wait_until(lambda: process.status() in {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}, f"{process} is stopped")
