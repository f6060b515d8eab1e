"""Keeps the model's libraries from reporting to their makers."""

import contextlib
import os
from collections.abc import Iterator
from typing import Final

NOTHING_REPORTED: Final = {
    # onnxruntime makes a device id and a database in the user's cache, and sends from there to Microsoft.
    "ORT_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
"""Environment variables under which a process of the model's libraries reports nothing."""


@contextlib.contextmanager
def nothing_reported() -> Iterator[None]:
    """Libraries that are imported inside report nothing, and leave nothing on disk to report from.

    They read the environment when they are imported, and no later: switching onnxruntime's telemetry off with a
    function leaves the device id and the database. Afterwards the environment is what it was, since the process may be
    that of another library.
    """
    before = {name: os.environ.get(name) for name in NOTHING_REPORTED}
    os.environ.update(NOTHING_REPORTED)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
