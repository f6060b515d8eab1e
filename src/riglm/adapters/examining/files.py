"""Files and disks, looked at."""

import os
import shutil
import stat
from pathlib import Path
from typing import Final

from riglm.ports.examining import Exposed, FilesLookPort

_OF_OTHERS: Final = 0o077


class FilesLook(FilesLookPort):
    """Looks at the files of this machine."""

    def exposed(self, path: Path) -> Exposed | None:
        """The path, if others than its owner may use it; on systems without such modes nothing is known."""
        if os.name != "posix":
            return None
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            return None
        return Exposed(path=path, mode=f"{mode:04o}") if mode & _OF_OTHERS else None

    def is_file(self, path: Path) -> bool:
        """Whether there is a file, and it may be read."""
        return path.is_file() and os.access(path, os.R_OK)

    def is_writable(self, directory: Path) -> bool:
        """Whether files can be made in a directory, or it can be made itself."""
        there = _there(directory)
        return there.is_dir() and os.access(there, os.W_OK | os.X_OK)

    def free_bytes(self, path: Path) -> int | None:
        """What is free on the disk that holds the path, or would."""
        try:
            return shutil.disk_usage(_there(path)).free
        except OSError:
            return None


def _there(path: Path) -> Path:
    """The path, or the nearest one above it that there is."""
    whole = path.absolute()
    return next((each for each in (whole, *whole.parents) if each.exists()), whole)
