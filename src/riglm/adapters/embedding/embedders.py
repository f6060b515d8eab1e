"""The embedder that the configuration asks for, and what answers while its model cannot."""

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Self

import numpy as np

from riglm.adapters.embedding.fastembed import BUNDLED_MODEL, described_model
from riglm.adapters.embedding.hashing import HashingEmbedder, text_hash
from riglm.adapters.embedding.model_client import FastembedEmbedder
from riglm.domain.errors import AnalyticsUnavailableError, ConfigurationError
from riglm.domain.prediction import Vector
from riglm.domain.schemas.section import OWN_PROVIDERS, EmbedderSettings
from riglm.ports.embedder import EmbedderPort, Embedders, EmbedderStatus, EmbedderUnavailableError, VectorCachePort
from riglm.ports.predictor import EMBEDDERS

_log: Final = logging.getLogger("riglm.embedder")


def select_embedder(provider: str, options: Mapping[str, Any] | None = None) -> EmbedderPort:
    """Make the embedder of a provider with these options; not open yet.

    Raises:
        ConfigurationError: nothing of this name is installed, it cannot be loaded, it is no embedder, or it does not
            take the options.
    """
    return PluggedEmbedder(EMBEDDERS.make(provider, options, own=OWN_PROVIDERS), provider)


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


class FallbackEmbedder(EmbedderPort):
    """The first of several embedders that answers, the last of which must always do.

    Each is opened when it is needed, from the beginning of the first user to the end of the last, on any threads. All
    rows of one answer come from one embedder. `model` changes with an answer only, so that asked by the same thread
    just after one it names the model that made it; `status` also reports when an earlier one has come back since.

    Vectors of public texts are kept in a store, by model and hash of the text. Other texts are not: the hash or the
    vector of a user's words could confirm a guess. Nor are vectors of low quality, which are quickly computed.
    """

    def __init__(self, *embedders: EmbedderPort, store: VectorCachePort | None = None) -> None:
        self._embedders = embedders
        self._acting = embedders[0]
        self._store = store
        self._has_store_failed = False
        self._opening = threading.Lock()  # held until an embedder is open
        self._counting = threading.Lock()
        self._opened: list[EmbedderPort] = []
        self._users = 0

    def __enter__(self) -> Self:
        with self._counting:
            self._users += 1
            is_first = self._users == 1
        if is_first:
            self.embed([""])
        return self

    def __exit__(self, *_: object) -> None:
        with self._counting:
            self._users = max(0, self._users - 1)
            closing, self._opened = ([], self._opened) if self._users else (self._opened, [])
        for embedder in closing:
            embedder.__exit__(None, None, None)

    @property
    def model(self) -> str:
        return self._acting.model

    def embed(self, texts: Sequence[str]) -> Vector:
        reasons = []
        for embedder in self._embedders:
            self._open(embedder)
            try:
                rows = embedder.embed(texts)
            except EmbedderUnavailableError as error:
                reasons.append(str(error))
                continue
            if reasons and self._acting is not embedder:
                _log.warning(
                    "the embedder's model cannot be used; a fallback is used until it can",
                    extra={"stand_in": embedder.model, "reason": "; ".join(reasons)},
                )
            self._acting = embedder
            return rows
        raise EmbedderUnavailableError("; ".join(reasons))

    def _open(self, embedder: EmbedderPort) -> None:
        with self._opening:
            with self._counting:
                if not self._users:
                    raise EmbedderUnavailableError("the embedder is not open")
                if embedder in self._opened:
                    return
                self._opened.append(embedder)
            embedder.__enter__()

    def embed_public(self, texts: Sequence[str]) -> Vector:
        model = self.model
        hashes = [text_hash(text) for text in texts]
        rows = {key: row for key, row in zip(hashes, self.find_public(texts), strict=True) if row is not None}
        missing = {key: text for key, text in zip(hashes, texts, strict=True) if key not in rows}
        if missing:
            made = dict(zip(missing, self.embed(list(missing.values())), strict=True))
            rows |= made
            self._keep(made)
        if not texts or self.model != model:
            return self.embed(texts)
        return np.stack([rows[key] for key in hashes])

    def find_public(self, texts: Sequence[str]) -> Sequence[Vector | None]:
        kept: Mapping[str, Vector] = {}
        status = self._acting.status()
        hashes = [text_hash(text) for text in texts]
        if self._store is not None and texts and status.semantic_quality == "high":
            try:
                kept = self._store.get_many(self.model, hashes)
                self._has_store_failed = False
            except AnalyticsUnavailableError as error:
                self._report_store(error)
        shape = (status.dimensions,)
        rows = [kept.get(each) for each in hashes]
        return [row if row is not None and row.shape == shape and np.isfinite(row).all() else None for row in rows]

    def _keep(self, vectors: Mapping[str, Vector]) -> None:
        if self._store is not None and self._acting.status().semantic_quality == "high":
            try:
                self._store.put_many(self.model, vectors)
            except AnalyticsUnavailableError as error:
                self._report_store(error)

    def _report_store(self, error: AnalyticsUnavailableError) -> None:
        if not self._has_store_failed:
            _log.warning("vectors are not kept: the store cannot be used", extra={"reason": str(error)})
        self._has_store_failed = True

    def status(self) -> EmbedderStatus:
        first = self._embedders[0].status()
        if first.status == "ready" or (first.status == "loading" and self._acting is self._embedders[0]):
            return first
        ready = next(status for each in self._embedders if (status := each.status()).status == "ready")
        return replace(ready, provider=first.provider, model=first.model, is_fallback_active=True)


def build_embedders(settings: EmbedderSettings, store: VectorCachePort | None = None) -> Embedders:
    """Return an embedder that always answers, and the configured one alone; neither is open yet or uses a network.

    The first is the configured model; else the bundled one; else hashed vectors.
    """
    hashing = HashingEmbedder()
    if settings.provider == "static":
        return Embedders(always=hashing, chosen=hashing)
    chosen: list[EmbedderPort]
    if settings.provider == "fastembed":
        chosen = [FastembedEmbedder(model, settings) for model in dict.fromkeys((settings.model, BUNDLED_MODEL))]
    else:
        chosen = [select_embedder(settings.provider, settings.options)]
    return Embedders(always=FallbackEmbedder(*chosen, hashing, store=store), chosen=chosen[0])


def require_known_model(settings: EmbedderSettings) -> None:
    """Raise ConfigurationError if the configured model does not exist; it need not be downloaded."""
    if settings.provider not in OWN_PROVIDERS:
        select_embedder(settings.provider, settings.options)
    if settings.provider != "fastembed" or settings.model == BUNDLED_MODEL:
        return
    try:
        described_model(settings.model)
    except ValueError as error:
        raise ConfigurationError(f"embedder.model: {error}") from error
