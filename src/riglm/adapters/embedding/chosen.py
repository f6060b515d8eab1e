"""The model that was chosen, and none in its place."""

from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from riglm.adapters.embedding.fastembed import FastembedEmbedder
from riglm.adapters.embedding.frames import Loaded
from riglm.domain.prediction import Vector
from riglm.ports.embedder import EmbedderPort, EmbedderStatus, EmbedderUnavailable


class ChosenEmbedder(EmbedderPort):
    """Answers from the model that is configured, or where none is from the one that was loaded first.

    A fallback that the embedder's process loaded serves the embedder's other callers, and not this one.
    """

    def __init__(self, embedder: FastembedEmbedder, configured: str | None) -> None:
        """`configured` is the configured model, None where the embedder chooses."""
        self._embedder = embedder
        self._configured = configured
        self._last: Loaded | None = None

    def __enter__(self) -> Self:
        """Open the embedder."""
        self._embedder.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the embedder."""
        self._embedder.__exit__(kind, error, trace)

    @property
    def model(self) -> str:
        """The model of the last answer; before that the one that was loaded, if it is the chosen one."""
        loaded = self._last or self._embedder.loaded
        if loaded is not None and self._is_chosen(loaded):
            return loaded.identity
        return self._wanted or self._embedder.model

    def embed(self, texts: Sequence[str]) -> Vector:
        """One row for each text, of the chosen model.

        Raises:
            EmbedderUnavailable: it does not respond, or a fallback was loaded.
        """
        loaded, rows = self._embedder.answered(texts)
        if loaded is not None and not self._is_chosen(loaded):
            reasons = [each.reason for each in loaded.passed_over if _is_same(each.model, self._wanted)]
            raise EmbedderUnavailable("; ".join(reasons) or f"{loaded.model} was loaded in the place of {self._wanted}")
        self._last = loaded
        return rows

    def status(self) -> EmbedderStatus:
        """The embedder's, which is unavailable while a fallback is used."""
        status, loaded = self._embedder.status(), self._embedder.loaded
        if loaded is None or self._is_chosen(loaded):
            return status
        return replace(status, status="unavailable", semantic_quality="none")

    @property
    def _wanted(self) -> str | None:
        first = self._embedder.first_loaded
        return self._configured or (None if first is None else first.model)

    def _is_chosen(self, loaded: Loaded) -> bool:
        return _is_same(loaded.model, self._wanted)


def _is_same(model: str, wanted: str | None) -> bool:
    return wanted is None or model.casefold() == wanted.casefold()
