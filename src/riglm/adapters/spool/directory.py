"""A directory of segments that one process holds: its own, or one adopted from an ended process."""

import logging
import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from riglm.adapters.spool.claim import Claim, Held
from riglm.adapters.spool.segment import Segment, segments_in
from riglm.domain.identifier import uuid7

_LOCK: Final = ".lock"
_log: Final = logging.getLogger("riglm.spool")


class SpoolDirectory:
    """Holds a directory by a lock file next to it, which is created before the directory and deleted after it."""

    def __init__(self, path: Path, claim: Claim) -> None:
        self.path = path
        self._claim = claim
        self.segments: deque[Segment] = deque()

    @classmethod
    def made(cls, root: Path) -> Self:
        """A new directory below `root`, of this process's own. Raises `OSError`."""
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = root / f"{uuid7().hex}-{os.getpid()}"  # sorts by time of birth
        lock = lock_of(path)
        try:
            claim = Claim(lock, str(os.getpid()))
        except OSError:
            with suppress(OSError):
                lock.unlink()
            raise
        try:
            path.mkdir(mode=0o700)
        except OSError:
            claim.remove()
            raise
        return cls(path, claim)

    @classmethod
    def left_behind(cls, root: Path) -> Iterator[Self]:
        """Each directory below `root` that no process holds any more, oldest first, held now; remains are cleared."""
        for lock in sorted(root.glob(f"*{_LOCK}")):
            try:
                claim = Claim(lock)
            except (Held, OSError):
                continue
            path = lock.with_suffix("")
            try:
                if not path.is_dir():
                    claim.remove()
                    continue
                segments = segments_in(path)
            except OSError as error:
                _log.warning("left a spool alone that cannot be looked at: %s", error)
                claim.release()
                continue
            directory = cls(path, claim)
            directory.segments.extend(map(Segment, segments))
            yield directory

    def remove(self, segment: Segment) -> None:
        """Remove a segment, which need not be there any more. Raises `OSError`."""
        self.segments.remove(segment)
        segment.path.unlink(missing_ok=True)

    def leave(self) -> None:
        """Release the directory, and remove it if it is empty and the disk permits it."""
        try:
            self.path.rmdir()
        except FileNotFoundError:
            self._claim.remove()
        except OSError:
            self._claim.release()
        else:
            self._claim.remove()

    def sync(self) -> None:
        """Bring the names of new segments to the disk. Raises `OSError`."""
        if os.name == "posix":
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def lock_of(directory: Path) -> Path:
    """The file by which a directory is held."""
    return directory.with_name(directory.name + _LOCK)
