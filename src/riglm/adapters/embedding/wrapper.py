"""A base class for embedders that wrap an embedder."""

from collections.abc import Sequence
from typing import Self

from riglm.domain.prediction import Vector
from riglm.ports.embedder import EmbedderPort, EmbedderStatus


class EmbedderWrapper(EmbedderPort):
    """Passes everything on; subclasses change a part of it."""

    def __init__(self, embedder: EmbedderPort) -> None:
        """Wrap `embedder`, which is opened and closed with this one."""
        self._embedder = embedder

    def __enter__(self) -> Self:
        self._embedder.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._embedder.__exit__(None, None, None)

    @property
    def model(self) -> str:
        return self._embedder.model

    def embed(self, texts: Sequence[str]) -> Vector:
        return self._embedder.embed(texts)

    def embed_public(self, texts: Sequence[str]) -> Vector:
        return self._embedder.embed_public(texts)

    def find_public(self, texts: Sequence[str]) -> Sequence[Vector | None]:
        return self._embedder.find_public(texts)

    def status(self) -> EmbedderStatus:
        return self._embedder.status()
