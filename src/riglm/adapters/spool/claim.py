"""A file that one process holds at a time, until it ends, however it ends."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, _FAR, os.SEEK_SET)  # a locked region cannot be read: lock one that holds nothing
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            raise BlockingIOError from None
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


_FAR: Final = 1 << 30


class Held(Exception):
    """Another process holds the file; `words` are what it wrote into it."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


class Claim:
    """A hold on the file at `path`, which is made when it is not there. The kernel lets go when the process ends."""

    def __init__(self, path: Path, words: str = "") -> None:
        """Take hold, and write `words` into the file for others to read.

        Raises:
            Held: another process holds it.
            OSError: the file cannot be made, locked or written.
        """
        self.path = path
        self._descriptor = _claimed(path)
        try:
            os.ftruncate(self._descriptor, 0)
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            os.write(self._descriptor, words.encode())
        except BaseException:
            self.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release the lock; the file stays."""
        with suppress(OSError):
            os.close(self._descriptor)

    def remove(self) -> None:
        """Remove the file, then release the lock, so that no process can take it in between."""
        with suppress(OSError):
            self.path.unlink()
        self.release()


def is_held(path: Path) -> bool:
    """Whether a process holds the file; it is not made."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        _lock(descriptor)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _claimed(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(descriptor)
            if _is_at(path, descriptor):
                return descriptor
        except BlockingIOError:
            words = os.pread(descriptor, 4096, 0) if hasattr(os, "pread") else b""
            os.close(descriptor)
            raise Held(words.decode(errors="replace")) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its last holder removed the file in between: that was another file


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        there, ours = path.stat(), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
