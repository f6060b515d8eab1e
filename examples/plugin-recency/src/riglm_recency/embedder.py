"""Vectors of words, each word a direction of its own: no model, no meaning, only what two texts share."""

from collections.abc import Sequence
from hashlib import blake2b
from types import TracebackType
from typing import Self

import numpy as np

from riglm.domain.prediction import Vector
from riglm.ports.embedder import EmbedderPort, EmbedderStatus


class WordsEmbedder(EmbedderPort):
    """Hashes the stems of words into `dimensions` places."""

    def __init__(self, dimensions: int = 512) -> None:
        if dimensions <= 0:
            raise ValueError("dimensions is a number above 0")
        self._dimensions = dimensions

    def __enter__(self) -> Self:
        """A real model would be loaded here."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """And let go here."""

    @property
    def model(self) -> str:
        """The identity of the vectors: another one for whatever makes other vectors."""
        return f"riglm-recency/words-{self._dimensions}"

    def embed(self, texts: Sequence[str]) -> Vector:
        """One row of unit length for each text."""
        rows = np.zeros((len(texts), self._dimensions), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.lower().split() or [""]:
                digest = blake2b(word[:5].encode("utf-8", "surrogatepass"), digest_size=8).digest()
                row[int.from_bytes(digest, "little") % self._dimensions] += 1.0
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def status(self) -> EmbedderStatus:
        """What is at work, for those who look."""
        return EmbedderStatus(
            provider="words",
            model=self.model,
            status="ready",
            actual_provider="words",
            actual_model=self.model,
            dimensions=self._dimensions,
            is_fallback_active=False,
            semantic_quality="low",
        )
