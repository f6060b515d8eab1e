"""Files written beside others, to take their places whole: named so that riglm knows its own again."""

import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

OLD: Final = 600.0
"""After so many seconds nobody is writing such a file any more."""

_OWN: Final = re.compile(r"\..*\.riglm-[a-z0-9_]{8}(?:\.[^.]*)?", re.DOTALL)


def opened_aside(target: Path) -> tuple[int, Path]:
    """A new file beside this one, for its user alone: a descriptor to write to, and where it is.

    Raises:
        OSError: the directory takes no file.
    """
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.stem}.riglm-", suffix=target.suffix)
    return descriptor, Path(name)


def left_behind(directory: Path) -> Iterator[Path]:
    """What a riglm that was stopped while it wrote left in a directory; nothing that is not surely its own and old.

    Raises:
        OSError: the directory cannot be read.
    """
    oldest = time.time() - OLD
    for file in directory.iterdir():
        if _OWN.fullmatch(file.name) and not file.is_symlink() and file.is_file() and file.stat().st_mtime < oldest:
            yield file
