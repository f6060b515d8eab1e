"""Files that only their owner can read, for all adapters that keep some."""

import os
import tempfile
from pathlib import Path


def replace_private_file(path: Path, content: bytes) -> None:
    """Write to a temporary file with mode 0600, then rename it: readers see the old content or the new one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(path)
    finally:
        Path(draft).unlink(missing_ok=True)
