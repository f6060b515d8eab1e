"""What every generator here does with the documents that it made: write them, or with `--check` compare them."""

import sys
from collections.abc import Mapping
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def keep(files: Mapping[Path, str]) -> int:
    """Write each file that does not hold its text, or with `--check` only tell which these are; the exit code."""
    stale = [file for file, text in files.items() if not file.exists() or file.read_text("utf-8") != text]
    if "--check" in sys.argv:
        script = Path(sys.argv[0]).resolve()
        for file in stale:
            sys.stderr.write(f"{file.name} is out of date: run `python {script.relative_to(_ROOT).as_posix()}`\n")
        return 1 if stale else 0
    for file in stale:
        file.write_text(files[file], "utf-8")
    return 0
