"""An embedder that does what a test says."""

from collections.abc import Sequence

import numpy as np

from riglm.domain.prediction import Vector
from riglm.ports.embedder import EmbedderPort, EmbedderStatus, EmbedderUnavailableError


class ScriptedEmbedder(EmbedderPort):
    """Its rows say which text and which model they are of; `fails` makes it unavailable."""

    def __init__(self, model: str = "scripted@1", *, dimensions: int = 3) -> None:
        self.model_now = model
        self.dimensions = dimensions
        self.fails = False
        self.opened = 0
        self.asked: list[list[str]] = []
        self.changes_to: str | None = None

    def __enter__(self):
        self.opened += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.opened -= 1

    @property
    def model(self) -> str:
        return self.model_now

    def embed(self, texts: Sequence[str]) -> Vector:
        self.asked.append(list(texts))
        if self.fails:
            raise EmbedderUnavailableError("scripted to fail")
        if self.changes_to:
            self.model_now, self.changes_to = self.changes_to, None
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[: self.dimensions] = [len(text), *self.model_now.encode()[-self.dimensions + 1 :]]
        return rows

    def status(self) -> EmbedderStatus:
        name = self.model_now.partition("@")[0]
        return EmbedderStatus(
            provider="scripted",
            model=name,
            status="unavailable" if self.fails else "ready",
            actual_provider="scripted",
            actual_model=name,
            dimensions=self.dimensions,
            is_fallback_active=False,
            semantic_quality="none" if self.fails else "high",
        )


class DictionaryCache:
    """Vectors in a dictionary."""

    def __init__(self) -> None:
        self.vectors: dict[tuple[str, str], Vector] = {}

    def get_many(self, model, hashes):
        return {each: self.vectors[model, each] for each in hashes if (model, each) in self.vectors}

    def put_many(self, model, vectors) -> None:
        for each, vector in vectors.items():
            self.vectors.setdefault((model, each), vector)
