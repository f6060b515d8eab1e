"""Which process holds a lock, as the kernel reports it: no lock is tried, so that no other process is refused one."""

import os
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_LOOKS: Final = 5
_PAUSE_SECONDS: Final = 0.25
_FLOCK: Final = "@hhqqi4x"
"""The kernel's `struct flock` on 64-bit Linux: type, whence, start, length, process."""


def holder(file: Path, start: int, length: int) -> str | None:
    """Return the id of the process that locks these bytes of a file for writing; None if there is none.

    The lookup works for POSIX locks, which SQLite uses. Where it is impossible, the result is None. A process
    that has the file open itself must not ask: closing any descriptor of it drops all its locks there.
    """
    if sys.platform != "linux":
        return None
    import fcntl  # noqa: PLC0415  # there is none on Windows

    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
        kind, _, _, _, process = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None if kind == fcntl.F_UNLCK else f"process {process}"


def lasting(look: Callable[[], str | None]) -> str | None:
    """What a look shows each time for a second; None as soon as it shows nothing, or something else."""
    first = look()
    for _ in range(_LOOKS - 1):
        if first is None:
            return None
        time.sleep(_PAUSE_SECONDS)
        if look() != first:
            return None
    return first
