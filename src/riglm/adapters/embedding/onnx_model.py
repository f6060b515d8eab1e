"""A model in memory. Used in the embedding process only, since the libraries that run models are large.

The bundled model needs onnxruntime alone. Models from a hub need fastembed, which the extra `fastembed` installs.
"""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from riglm.adapters.embedding.bundled import (
    BUNDLED_MODEL,
    MAX_TOKENS,
    REVISION,
    TOKENIZER,
    checked_file,
    nothing_reported,
)
from riglm.adapters.embedding.frames import PassedOver
from riglm.adapters.embedding.word_pieces import WordPieces
from riglm.domain.prediction import Vector

if TYPE_CHECKING:
    from fastembed import TextEmbedding

# More threads than one spin while they wait, and cost twice the processor time on a shared machine.
_THREADS: Final = 1
_PROVIDERS: Final = ("CPUExecutionProvider",)


class UnknownModelError(ValueError):
    """There is no model of this name, or fastembed is not installed; the message contains the fix."""


class OnnxModel:
    """A loaded model."""

    def __init__(self, name: str, revision: str, run: Callable[[str], Any]) -> None:
        """A model of this name, whose vectors no other revision makes; `run` gives one, and is tried once.

        Raises:
            ValueError: it gives no usable vector.
        """
        self.name = name
        self.identity = f"{name}@{revision}"
        self._run = run
        self.dimensions = len(self.embed(""))

    def embed(self, text: str) -> Vector:
        """One row of unit length.

        Each text is a separate run: padding to a common length and kernels that are chosen by the size of a batch
        cannot make its vector depend on its company, and on one thread a batch is not faster.
        """
        return _unit(np.asarray(self._run(text), dtype=np.float32))


def load_first(names: Iterable[str], directory: Path) -> tuple[OnnxModel | None, list[PassedOver]]:
    """The first of the models that can be loaded without a network, and why those before it cannot."""
    passed_over: list[PassedOver] = []
    for name in names:
        try:
            return load(name, directory), passed_over
        except Exception as error:  # noqa: BLE001  # for any failure, the next model may load
            passed_over.append(PassedOver(model=name, reason=f"{error}" or type(error).__name__))
    return None, passed_over


def load(name: str, directory: Path, *, download: bool = False) -> OnnxModel:
    """Load the bundled model, or one of fastembed's from `directory`, downloaded only with `download`.

    Raises:
        LookupError: the bundled model is missing or altered.
        UnknownModelError: fastembed has no such model.
        ValueError: the model is not in the directory.
    """
    return _load_bundled() if name == BUNDLED_MODEL else _load_from_hub(name, directory, download=download)


def described_model(name: str) -> dict[str, Any]:
    """Return fastembed's description of one of its models, which need not be downloaded.

    Raises:
        UnknownModelError: fastembed has no such model.
    """
    known = {model["model"].lower(): model for model in _fastembed().list_supported_models()}
    if name.lower() not in known:
        raise UnknownModelError(
            f"fastembed knows no model {name!r} — fix: choose one of {', '.join(_near(name, known))}"
        )
    return known[name.lower()]


def _load_bundled() -> OnnxModel:
    file = checked_file()
    with nothing_reported():
        import onnxruntime

    tokenizer = WordPieces(TOKENIZER, MAX_TOKENS)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = _THREADS
    options.enable_cpu_mem_arena = False  # it would keep what loading needs, 70 MB
    session = onnxruntime.InferenceSession(str(file), options, providers=list(_PROVIDERS))

    def run(text: str) -> Any:
        ids = np.array([tokenizer.ids(text)], dtype=np.int64)
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        [rows] = session.run(None, given)
        mean = rows.sum(axis=1, dtype=np.float64)[0] / ids.shape[1]
        return mean / np.linalg.norm(mean)

    return OnnxModel(BUNDLED_MODEL, REVISION, run)


def _load_from_hub(name: str, directory: Path, *, download: bool) -> OnnxModel:
    described = described_model(name)
    try:
        engine = _fastembed()(
            name, cache_dir=str(directory), local_files_only=not download, threads=_THREADS, providers=_PROVIDERS
        )
    except Exception as error:
        if download:
            raise
        raise ValueError(f"{name} is not in {directory} — fix: riglm embedder pull {name}") from error
    inner: Any = engine.model
    revision = _revision(Path(inner._model_dir), described["model_file"])  # noqa: SLF001  # the only source

    def run(text: str) -> Any:
        [row] = engine.embed([text], batch_size=1)
        return row

    return OnnxModel(described["model"], revision, run)


def _fastembed() -> "type[TextEmbedding]":
    with nothing_reported():
        try:
            from fastembed import TextEmbedding
        except ModuleNotFoundError as error:
            raise UnknownModelError(
                f"only {BUNDLED_MODEL} is installed; others need fastembed — fix: pip install 'riglm[fastembed]'"
            ) from error

    return TextEmbedding


def _near(name: str, known: dict[str, dict[str, Any]]) -> list[str]:
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), known, n=3, cutoff=0.3) or list(known)[:3]
    return [known[each]["model"] for each in near]


def _revision(directory: Path, file: str) -> str:
    if directory.parent.name == "snapshots":
        return directory.name[:12]
    return hashlib.sha256((directory / file).read_bytes()).hexdigest()[:12]


def _unit(row: Vector) -> Vector:
    length = np.linalg.norm(row)
    if not np.isfinite(length) or not length > 0:
        raise ValueError("the model gave no usable vector")
    return (row / length).astype(np.float32)
