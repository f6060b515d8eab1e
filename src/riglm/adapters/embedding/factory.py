"""The embedder that the configuration asks for."""

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self, cast

import numpy as np

from riglm.adapters.embedding.bundled import BUNDLED_MODEL
from riglm.adapters.embedding.cached import CachedEmbedder
from riglm.adapters.embedding.fastembed import ChosenEmbedder, FastembedEmbedder
from riglm.adapters.embedding.hashing import HashingEmbedder
from riglm.adapters.embedding.supervision import socket_directory
from riglm.adapters.embedding.wrapper import EmbedderWrapper
from riglm.domain.errors import ConfigurationError
from riglm.domain.prediction import Vector
from riglm.domain.schemas.section import OWN_PROVIDERS, EmbedderSettings
from riglm.ports.embedder import EmbedderPort, Embedders, EmbedderStatus, EmbedderUnavailableError, VectorCachePort
from riglm.ports.predictor import PluginPoint

GROUP: Final = "riglm.embedders"
"""The entry-point group in which packages name their embedders."""

_SOCKET: Final = PluginPoint(
    group=GROUP,
    what="embedder",
    key="embedder.provider",
    options="embedder.options",
    methods=("__enter__", "__exit__", "embed", "status"),
    port="riglm.ports.embedder.EmbedderPort",
)
_log: Final = logging.getLogger("riglm.embedder")


def available() -> tuple[str, ...]:
    """Return the installed providers, sorted, without the built-in ones; nothing of theirs is imported."""
    return _SOCKET.names()


def select_embedder(provider: str, options: Mapping[str, Any] | None = None) -> EmbedderPort:
    """Make the embedder of a provider with these options; not open yet.

    Raises:
        ConfigurationError: nothing of this name is installed, it cannot be loaded, it is no embedder, or it does not
            take the options.
    """
    made = cast("EmbedderPort", _SOCKET.make(provider, options, own=OWN_PROVIDERS))
    return PluggedEmbedder(made, provider)


class PluggedEmbedder(EmbedderPort):
    """An embedder from a plug-in: any failure or invalid result makes it unavailable."""

    def __init__(self, embedder: EmbedderPort, provider: str) -> None:
        self._embedder = embedder
        self._provider = provider
        self._failure = ""

    def __enter__(self) -> Self:
        try:
            self._embedder.__enter__()
        except Exception as error:  # noqa: BLE001  # a fallback is used
            self._failure = f"{self._provider} could not be opened: {error}"
            _log.warning("an embedder could not be opened", exc_info=True)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._embedder.__exit__(None, None, None)
        except Exception:  # noqa: BLE001  # it is released in any case
            _log.warning("an embedder could not be closed", exc_info=True)

    @property
    def model(self) -> str:
        return self._embedder.model

    def embed(self, texts: Sequence[str]) -> Vector:
        """One row for each text.

        Raises:
            EmbedderUnavailableError: it raised, or what it gave are no such rows.
        """
        if self._failure:
            raise EmbedderUnavailableError(self._failure)
        try:
            rows: Vector = np.array(self._embedder.embed(texts), dtype=np.float32)
        except EmbedderUnavailableError:
            raise
        except Exception as error:
            raise EmbedderUnavailableError(f"{self._provider}: {error}") from error
        if rows.ndim != 2 or len(rows) != len(texts) or not np.isfinite(rows).all():
            raise EmbedderUnavailableError(f"{self._provider} gave no finite row for each text, but {rows.shape}")
        return rows

    def status(self) -> EmbedderStatus:
        said = replace(self._embedder.status(), provider=self._provider)
        return replace(said, status="unavailable", semantic_quality="none") if self._failure else said


_fallback_log = logging.getLogger("riglm.embedder")


class FallbackEmbedder(EmbedderPort):
    """One embedder, and another that answers while the first cannot.

    All rows of one answer come from one of them. `model` changes with an answer only, so that asked by the same thread
    just after one it names the model that made it; `status` also reports when the first has come back since.
    """

    def __init__(self, first: EmbedderPort, stand_in: EmbedderPort) -> None:
        """Use `first` where it answers, else `stand_in`, which must always answer."""
        self._first = first
        self._stand_in = stand_in
        self._acting = first
        self._closing = False

    def __enter__(self) -> Self:
        self._closing = False
        self._stand_in.__enter__()
        self._first.__enter__()
        self.embed([""])
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        try:
            self._first.__exit__(None, None, None)
        finally:
            self._stand_in.__exit__(None, None, None)

    @property
    def model(self) -> str:
        return self._acting.model

    def embed(self, texts: Sequence[str]) -> Vector:
        try:
            rows = self._first.embed(texts)
        except EmbedderUnavailableError as error:
            if self._closing:
                raise
            if self._acting is not self._stand_in:
                _fallback_log.warning(
                    "the embedder's model cannot be used; a fallback is used until it can",
                    extra={"stand_in": self._stand_in.model, "reason": str(error)},
                )
                self._acting = self._stand_in
            return self._stand_in.embed(texts)
        self._acting = self._first
        return rows

    def status(self) -> EmbedderStatus:
        first = self._first.status()
        if first.status == "ready" or (first.status == "loading" and self._acting is self._first):
            return first
        acting = self._stand_in.status()
        return replace(acting, provider=first.provider, model=first.model, is_fallback_active=True)


_COMMON_MODELS = ("sentence-transformers/all-MiniLM-L6-v2", "BAAI/bge-small-en-v1.5")


def build_embedder(settings: EmbedderSettings, cache: VectorCachePort | None = None) -> EmbedderPort:
    """An embedder that always answers and never uses a network; not open yet.

    It is the configured model; else the bundled one; else a common one that was downloaded earlier; else hashed
    vectors.
    """
    return build_embedders(settings, cache).always


def build_embedders(
    settings: EmbedderSettings, cache: VectorCachePort | None = None, shared_in: Path | None = None
) -> Embedders:
    """The same embedder, and the configured model without a fallback; neither is open yet.

    `shared_in` is the directory of the socket of the server that the user's riglm processes share, if they may.
    """
    if settings.provider == "static":
        hashing = HashingEmbedder()
        return Embedders(always=hashing, chosen=hashing)
    if settings.provider != "fastembed":
        plugged = select_embedder(settings.provider, settings.options)
        return Embedders(always=CachedEmbedder(FallbackEmbedder(plugged, HashingEmbedder()), cache), chosen=plugged)
    model = FastembedEmbedder(
        candidates(settings),
        directory=models_directory(settings),
        deadline=settings.deadline,
        start_deadline=settings.start_deadline,
        batch=settings.batch,
        idle=settings.idle,
        shared_in=shared_in if settings.shared else None,
    )
    configured = settings.model if "model" in settings.model_fields_set else None
    return Embedders(
        always=CachedEmbedder(FallbackEmbedder(model, HashingEmbedder()), cache),
        chosen=ChosenEmbedder(model, configured),
    )


def candidates(settings: EmbedderSettings) -> tuple[str, ...]:
    """The models to try, in this order."""
    return tuple(dict.fromkeys((settings.model, BUNDLED_MODEL, *_COMMON_MODELS)))


def require_known_model(settings: EmbedderSettings) -> None:
    """Raise ConfigurationError if the configured model does not exist; it need not be downloaded."""
    if settings.provider not in OWN_PROVIDERS:
        select_embedder(settings.provider, settings.options)
    if settings.provider != "fastembed" or settings.model == BUNDLED_MODEL:
        return
    from riglm.adapters.embedding.onnx_model import UnknownModelError, described_model

    try:
        described_model(settings.model)
    except UnknownModelError as error:
        raise ConfigurationError(f"embedder.model: {error}") from error


def models_directory(settings: EmbedderSettings) -> Path:
    """Where downloaded models are kept; it need not exist."""
    if settings.directory:
        return Path(settings.directory).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("riglm", appauthor=False)) / "models"


class SharedEmbedder(EmbedderWrapper):
    """Open from the first user's beginning to the last one's end, on any threads."""

    def __init__(self, embedder: EmbedderPort) -> None:
        """Share `embedder`, which is not open yet."""
        super().__init__(embedder)
        self._opening = threading.Lock()  # held until it is open
        self._counting = threading.Lock()
        self._users = 0

    def __enter__(self) -> Self:
        with self._opening:
            with self._counting:
                self._users += 1
                is_first = self._users == 1
            if is_first:
                super().__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        with self._counting:
            self._users = max(0, self._users - 1)
            is_last = self._users == 0
        if is_last:
            super().__exit__(None, None, None)


def shared_embedders(settings: EmbedderSettings, cache: VectorCachePort) -> Embedders:
    """Return the embedders that the parts of a process share, and, if configured, the processes of a user."""
    made = build_embedders(settings, cache, socket_directory(os.environ))
    return replace(made, always=SharedEmbedder(made.always))
