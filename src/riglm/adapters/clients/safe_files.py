"""Files that are replaced as a whole: each is at any time the old one or the new one."""

import contextlib
import os
import shlex
import stat
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from riglm.domain.control import ConflictError
from riglm.domain.shortage import failed_write

_WRITABLE: Final = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


class SafeFiles:
    """Files of this machine: symbolic links, modes and owners stay as they are, new files are for the user alone.

    Folders that were made for a file are removed with it.
    """

    def __init__(self) -> None:
        self._made: list[Path] = []

    def read(self, file: Path) -> bytes | None:
        """Return the content; None when there is no such file.

        Raises:
            ConflictError: it cannot be read.
        """
        try:
            return file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConflictError(f"{file} cannot be read ({error.strerror}) — fix: let riglm read it") from None

    def write(self, file: Path, before: bytes | None, after: bytes | None) -> None:
        """Replace the content of the file, or delete it.

        Raises:
            ConflictError: it cannot be written, or does not hold what it held before.
        """
        if before == after:
            return
        target = file.resolve()  # of a symbolic link, what it points to is replaced
        if before is not None and after is not None:
            _require_unprotected(target)
        if self.read(file) != before:
            raise ConflictError(f"{file} was changed by another process — fix: run it again")
        try:
            if after is None:
                file.unlink()
                _remove_empty([file.parent, *(folder for folder in file.parent.parents if folder in self._made)])
            else:
                self._made += _put(target, after)
        except OSError as error:
            raise ConflictError(failed_write(file, error, "let riglm write there, and run it again")) from None


def _require_unprotected(target: Path) -> None:
    """Raise ConflictError for a file without write permission: a new one in its place would get round that."""
    try:
        is_writable = target.stat().st_mode & _WRITABLE and os.access(target, os.W_OK)  # root may write everything
    except OSError:
        return
    if not is_writable:
        raise ConflictError(
            f"{target} has no write permission — fix: `chmod u+w {shlex.quote(str(target))}` if it may change"
        )


def _put(target: Path, content: bytes) -> list[Path]:
    """Create or replace a file by way of a temporary one next to it; return the folders that were made for it."""
    absent = [each for each in target.parents if not each.exists()]
    there = target.stat() if target.exists() else None
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.stem}.riglm-", suffix=target.suffix)
        try:
            with os.fdopen(descriptor, "wb") as file:
                if there is not None and sys.platform != "win32":
                    if (there.st_uid, there.st_gid) != (os.geteuid(), os.getegid()):
                        os.fchown(file.fileno(), there.st_uid, there.st_gid)
                    os.fchmod(file.fileno(), there.st_mode & 0o7777)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except BaseException:
        _remove_empty(absent)
        raise
    return absent


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove these folders, the innermost first, up to one that is not empty."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()
