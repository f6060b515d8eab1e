"""Files of the user, each at any time the old one or the new one, whole."""

import contextlib
import os
from pathlib import Path

from riglm.adapters.configuration.aside import left_behind, opened_aside
from riglm.adapters.configuration.persisting import Replacement
from riglm.domain.control import Conflict
from riglm.ports.clients import FilesPort


class SafeFiles(FilesPort):
    """Files of this machine: symbolic links, modes and owners stay as they are, new files are for the user alone."""

    def read(self, file: Path) -> bytes | None:
        """What it holds; None when there is no such file."""
        try:
            return file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Conflict(f"{file} cannot be read ({error.strerror}) — fix: let riglm read it") from None

    def has_folder(self, file: Path) -> bool:
        """Whether the directory that the file is in, or would be, is there."""
        return file.parent.is_dir()

    def write(self, file: Path, before: bytes | None, after: bytes | None) -> None:
        """Replace the content of the file, or delete it; a new one is readable for its user only."""
        if before == after:
            return
        if before is not None and after is not None:
            try:
                _replace(file, before, after)
            except Conflict as error:
                what = str(error).partition(" — fix")[0]
                raise Conflict(f"{what} — fix: see that riglm may write there, and run it again") from None
            return
        if self.read(file) != before:
            raise Conflict(f"{file} was changed by another process — fix: run it again")
        try:
            if after is None:
                file.unlink()
            else:
                _make(file, after)
        except OSError as error:
            raise Conflict(f"{file} cannot be written ({error.strerror}) — fix: let riglm write there") from None

    def clear(self, directory: Path) -> tuple[Path, ...]:
        """Remove what a riglm that was stopped while it wrote left in a directory; what was removed."""
        removed = []
        with contextlib.suppress(OSError):
            for file in left_behind(directory):
                file.unlink()
                removed.append(file)
        return tuple(removed)


def _replace(file: Path, before: bytes, after: bytes) -> None:
    replacement = Replacement(file, before, after, lambda: None)
    try:
        replacement.take_over()
    except BaseException:
        replacement.discard()
        raise


def _make(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, aside = opened_aside(file)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        aside.replace(file)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
