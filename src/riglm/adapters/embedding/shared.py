"""One embedder for several users, each of whom opens and closes it."""

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from riglm.domain.prediction import Vector
from riglm.ports.embedder import EmbedderPort, EmbedderStatus


class SharedEmbedder(EmbedderPort):
    """Open from the first user's beginning to the last one's end, on any threads."""

    def __init__(self, embedder: EmbedderPort) -> None:
        """Share `embedder`, which is not open yet."""
        self._embedder = embedder
        self._opening = threading.Lock()  # held until it is open
        self._counting = threading.Lock()
        self._users = 0

    def __enter__(self) -> Self:
        """Open the embedder for the first user."""
        with self._opening:
            with self._counting:
                self._users += 1
                is_first = self._users == 1
            if is_first:
                self._embedder.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the embedder after the last user, also while it is still opening; closing it again does no harm."""
        with self._counting:
            self._users = max(0, self._users - 1)
            is_last = self._users == 0
        if is_last:
            self._embedder.__exit__(kind, error, trace)

    @property
    def model(self) -> str:
        """The embedder's model."""
        return self._embedder.model

    def embed(self, texts: Sequence[str]) -> Vector:
        """The embedder's rows."""
        return self._embedder.embed(texts)

    def embed_public(self, texts: Sequence[str]) -> Vector:
        """The embedder's rows, of public texts."""
        return self._embedder.embed_public(texts)

    def find_public(self, texts: Sequence[str]) -> Sequence[Vector | None]:
        """The vectors that the embedder kept."""
        return self._embedder.find_public(texts)

    def status(self) -> EmbedderStatus:
        """The embedder's."""
        return self._embedder.status()
