"""Where the store is, looked at before it is read."""

import os
from pathlib import Path

from riglm.domain.errors import AnalyticsUnavailable


def is_there(file: Path) -> bool:
    """Whether the database file is there; nothing is made.

    Raises:
        AnalyticsUnavailable: it does not exist and could not be created, or its directory cannot be read.
    """
    try:
        file.lstat()
    except FileNotFoundError:
        place = next(parent for parent in file.absolute().parents if parent.exists())
        if not os.access(place, os.W_OK | os.X_OK):
            raise _unusable(file, f"{place} is not writable") from None
        return False
    except OSError as error:
        raise _unusable(file, error.strerror) from None
    return True


def _unusable(file: Path, reason: str | None) -> AnalyticsUnavailable:
    return AnalyticsUnavailable(
        f"the data directory {file.parent} cannot be used ({reason}) — fix: make it a directory that you may write "
        "in, or name another in RIGLM_DATA_DIR or storage.path"
    )
