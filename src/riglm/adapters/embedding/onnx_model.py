"""A model that fastembed runs. Used in the embedding process only: its libraries take a second and 80 MB to load."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from riglm.adapters.embedding.bundled import BUNDLED_MODEL, DIMENSIONS, REVISION, TOKENIZER, checked_file
from riglm.adapters.embedding.frames import PassedOver
from riglm.adapters.embedding.reporting import nothing_reported
from riglm.domain.prediction import Vector

if TYPE_CHECKING:
    from fastembed import TextEmbedding

# More threads than one spin while they wait, and cost twice the processor time on a shared machine.
_SESSION: Final[dict[str, Any]] = {"threads": 1, "providers": ["CPUExecutionProvider"]}


class UnknownModel(ValueError):
    """Nobody has a model of this name; the message names some that there are."""


class OnnxModel:
    """A loaded model."""

    def __init__(self, name: str, revision: str, engine: "TextEmbedding") -> None:
        """A model of this name, whose vectors no other revision makes; it is tried once.

        Raises:
            ValueError: it gives no usable vector.
        """
        self.name = name
        self.identity = f"{name}@{revision}"
        self._engine = engine
        self.dimensions = len(self.embed(""))

    def embed(self, text: str) -> Vector:
        """One row of unit length.

        Each text is a run of its own: padding to a common length and kernels that are chosen by the size of a batch
        cannot make its vector depend on its company, and on one thread a batch is not faster.
        """
        [row] = self._engine.embed([text], batch_size=1)
        return _unit(np.asarray(row, dtype=np.float32))


def load_first(names: Iterable[str], directory: Path) -> tuple[OnnxModel | None, list[PassedOver]]:
    """The first of the models that can be loaded without a network, and why those before it cannot."""
    passed_over: list[PassedOver] = []
    for name in names:
        try:
            return load(name, directory), passed_over
        except Exception as error:  # noqa: BLE001  # whatever the libraries raise, the next model may load
            passed_over.append(PassedOver(model=name, reason=f"{error}" or type(error).__name__))
    return None, passed_over


def load(name: str, directory: Path, *, download: bool = False) -> OnnxModel:
    """The bundled model, or one of fastembed's from `directory`, fetched from the hub only when `download` says so.

    Raises:
        LookupError: the bundled model is missing or altered.
        UnknownModel: fastembed has no such model.
        ValueError: the model is not in the directory.
    """
    return _load_bundled() if name == BUNDLED_MODEL else _load_from_hub(name, directory, download=download)


def described_model(name: str) -> dict[str, Any]:
    """What fastembed says of one of its models, which need not be downloaded.

    Raises:
        UnknownModel: fastembed has no such model.
    """
    known = {model["model"].lower(): model for model in _fastembed().list_supported_models()}
    if name.lower() not in known:
        raise UnknownModel(f"fastembed knows no model {name!r} — fix: choose one of {', '.join(_near(name, known))}")
    return known[name.lower()]


def _load_bundled() -> OnnxModel:
    file = checked_file()
    models = _fastembed()
    from fastembed.common.model_description import ModelSource, PoolingType

    if not any(model["model"] == BUNDLED_MODEL for model in models.list_supported_models()):
        models.add_custom_model(
            model=BUNDLED_MODEL,
            pooling=PoolingType.MEAN,
            normalization=True,
            dim=DIMENSIONS,
            sources=ModelSource(hf="sentence-transformers/all-MiniLM-L6-v2"),  # asked for by the class, never asked
            model_file=str(file),  # an absolute path wins over the directory that it is joined to
        )
    engine = models(BUNDLED_MODEL, specific_model_path=str(TOKENIZER), **_SESSION)
    return OnnxModel(BUNDLED_MODEL, REVISION, engine)


def _load_from_hub(name: str, directory: Path, *, download: bool) -> OnnxModel:
    described = described_model(name)
    try:
        engine = _fastembed()(name, cache_dir=str(directory), local_files_only=not download, **_SESSION)
    except Exception as error:
        if download:
            raise
        raise ValueError(f"{name} is not in {directory} — fix: riglm embedder pull {name}") from error
    inner: Any = engine.model
    revision = _revision(Path(inner._model_dir), described["model_file"])  # noqa: SLF001  # nothing else tells where
    return OnnxModel(described["model"], revision, engine)


def _fastembed() -> "type[TextEmbedding]":
    """The only place where riglm imports what runs models."""
    with nothing_reported():
        from fastembed import TextEmbedding

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
