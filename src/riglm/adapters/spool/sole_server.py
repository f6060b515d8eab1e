"""One `riglm serve` to a data directory."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from riglm.adapters.spool.claim import Claim, Held
from riglm.domain.errors import ConfigurationError

LOCK: Final = "serve.lock"


@contextmanager
def sole_server(directory: Path, address: str) -> Iterator[None]:
    """Hold the data directory for a server at `address` while the block runs; a directory that cannot be used is not.

    Raises:
        ConfigurationError: another server holds it.
    """
    with ExitStack() as stack:
        with suppress(OSError):  # an unwritable directory is reported by the first write
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.callback(_claim(directory, address).remove)
        yield


def _claim(directory: Path, address: str) -> Claim:
    try:
        return Claim(directory / LOCK, f"process {os.getpid()}, {address}")
    except Held as other:
        raise ConfigurationError(
            f"another riglm serve ({other.words or 'just starting'}) uses the data directory {directory} — fix: end "
            "that one, or set a separate directory for this one in RIGLM_DATA_DIR; the two may share the database by "
            "`storage.path` or `storage.url`"
        ) from None
