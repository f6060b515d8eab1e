"""Temporary files that replace a file as a whole: named so that riglm recognizes its own."""

import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

OLD: Final = 600.0
"""Seconds after which such a file is not being written any more."""

_OWN: Final = re.compile(r"\..*\.riglm-[a-z0-9_]{8}(?:\.[^.]*)?", re.DOTALL)


def opened_aside(target: Path) -> tuple[int, Path]:
    """Create a file next to this one, for its user only: a descriptor to write to, and its path.

    Raises:
        OSError: the directory takes no file.
    """
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.stem}.riglm-", suffix=target.suffix)
    return descriptor, Path(name)


def left_behind(directory: Path) -> Iterator[Path]:
    """Return what a riglm that was stopped while it wrote left in a directory; only old files that are surely its own.

    Raises:
        OSError: the directory cannot be read.
    """
    oldest = time.time() - OLD
    for file in directory.iterdir():
        if _OWN.fullmatch(file.name) and not file.is_symlink() and file.is_file() and file.stat().st_mtime < oldest:
            yield file
