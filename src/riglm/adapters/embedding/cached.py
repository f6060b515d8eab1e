"""Remembers vectors, so that a text is embedded once."""

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Final

import numpy as np

from riglm.adapters.embedding.frames import Turns
from riglm.adapters.embedding.hashing import text_hash
from riglm.adapters.embedding.wrapper import EmbedderWrapper
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.domain.prediction import Vector
from riglm.ports.embedder import EmbedderPort, VectorCachePort

_OVERHEAD_BYTES: Final = 400


class RecentVectors:
    """Keeps the vectors asked for last, up to a number of bytes. May be used by several threads."""

    def __init__(self, most_bytes: int) -> None:
        """Keep nothing yet, and never more than `most_bytes`."""
        self._most_bytes = most_bytes
        self._bytes = 0
        self._vectors: OrderedDict[tuple[str, str], Vector] = OrderedDict()
        self._lock = Lock()

    def get(self, model: str, text_hash: str) -> Vector | None:
        """The vector, if it is kept."""
        with self._lock:
            vector = self._vectors.get((model, text_hash))
            if vector is not None:
                self._vectors.move_to_end((model, text_hash))
            return vector

    def put(self, model: str, text_hash: str, vector: Vector) -> None:
        """Keep a copy, and remove the least recently used."""
        kept = vector.copy()
        kept.flags.writeable = False
        with self._lock:
            before = self._vectors.pop((model, text_hash), None)
            self._bytes += _size(kept) - (_size(before) if before is not None else 0)
            self._vectors[model, text_hash] = kept
            while self._bytes > self._most_bytes:
                _, dropped = self._vectors.popitem(last=False)
                self._bytes -= _size(dropped)


def _size(vector: Vector) -> int:
    return vector.nbytes + _OVERHEAD_BYTES


_log = logging.getLogger("riglm.embedder")
_MAX_BYTES: Final = 2 * 1024 * 1024  # a thousand vectors
_ATTEMPTS: Final = 3
_BATCH: Final = 16


class CachedEmbedder(EmbedderWrapper):
    """Asks another embedder only for what it does not remember, by model and hash of the text.

    The store has public texts only: the hash or the vector of a user's words could confirm a guess.
    A failing store is not used. Vectors of low quality are quickly recomputed and are not kept, so that every
    question asks whether the real model is back. Several threads may ask; their batches take turns.
    """

    def __init__(
        self, embedder: EmbedderPort, store: VectorCachePort | None = None, *, most_bytes: int = _MAX_BYTES
    ) -> None:
        """Remember what `embedder` answers, up to `most_bytes` in memory, and in the store if there is one."""
        super().__init__(embedder)
        self._store = store
        self._recent = RecentVectors(most_bytes)
        self._store_failed = False
        self._turns = Turns()

    def embed(self, texts: Sequence[str]) -> Vector:
        return self._embedded(texts, None)

    def embed_public(self, texts: Sequence[str]) -> Vector:
        return self._embedded(texts, self._store)

    def find_public(self, texts: Sequence[str]) -> Sequence[Vector | None]:
        if not self._worth_keeping():
            return [None] * len(texts)
        hashes = [text_hash(text) for text in texts]
        known = self._known(self.model, dict.fromkeys(hashes, ""), self._store)
        return [known.get(each) for each in hashes]

    def _embedded(self, texts: Sequence[str], store: VectorCachePort | None) -> Vector:
        by_hash = {text_hash(text): text for text in texts}
        for _ in range(_ATTEMPTS):
            if not texts or not self._worth_keeping():
                break
            model = self.model
            known = self._known(model, by_hash, store)
            missing = [key for key in by_hash if key not in known]
            for start in range(0, len(missing), _BATCH):
                known |= self._made({key: by_hash[key] for key in missing[start : start + _BATCH]}, store)
            if self.model == model:
                return np.stack([known[text_hash(text)] for text in texts])
        return self._embedder.embed(texts)

    def _worth_keeping(self) -> bool:
        return self.status().semantic_quality == "high"

    def _known(self, model: str, hashes: Mapping[str, str], store: VectorCachePort | None) -> dict[str, Vector]:
        known = {key: vector for key in hashes if (vector := self._recent.get(model, key)) is not None}
        missing = [key for key in hashes if key not in known]
        dimensions = self.status().dimensions
        for key, vector in self._stored(model, missing, store).items():
            if vector.shape == (dimensions,) and np.isfinite(vector).all():
                self._recent.put(model, key, vector)
                known[key] = vector
        return known

    def _made(self, missing: Mapping[str, str], store: VectorCachePort | None) -> dict[str, Vector]:
        with self._turns:  # no other model may be loaded between the response and the check of its model
            rows = self._embedder.embed(list(missing.values()))
            model = self.model
        made = dict(zip(missing, rows, strict=True))
        if self._worth_keeping():
            for key, vector in made.items():
                self._recent.put(model, key, vector)
            self._keep(model, made, store)
        return made

    def _stored(self, model: str, hashes: Sequence[str], store: VectorCachePort | None) -> Mapping[str, Vector]:
        if store is None or not hashes:
            return {}
        try:
            found = store.get_many(model, hashes)
        except AnalyticsUnavailableError as error:
            self._without_store(error)
            return {}
        self._store_failed = False
        return found

    def _keep(self, model: str, vectors: Mapping[str, Vector], store: VectorCachePort | None) -> None:
        if store is None:
            return
        try:
            store.put_many(model, vectors)
        except AnalyticsUnavailableError as error:
            self._without_store(error)

    def _without_store(self, error: AnalyticsUnavailableError) -> None:
        if not self._store_failed:
            _log.warning("vectors are not kept: the store cannot be used", extra={"reason": str(error)})
        self._store_failed = True
