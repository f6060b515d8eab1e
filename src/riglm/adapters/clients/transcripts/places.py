"""Where transcripts lie."""

import os
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

_HEAD: Final = 4096


def head(file: Path) -> bytes:
    """How a file begins. Raises `OSError` when it cannot be read."""
    with file.open("rb") as opened:
        return opened.read(_HEAD).partition(b"\n")[0]


def found_below(place: Path, *patterns: str) -> list[Path]:
    """The files in a folder, however deep, whose names fit one of the patterns; a file is given as it is.

    What is linked to is not followed, so that nothing is found twice.

    Raises:
        OSError: the place may not be looked at.
    """
    if place.is_file():
        return [place]
    found = []
    for folder, _, names in os.walk(place):
        fitting = (Path(folder, name) for name in names if any(fnmatch(name, pattern) for pattern in patterns))
        found += [file for file in fitting if not file.is_symlink()]
    return sorted(found)
