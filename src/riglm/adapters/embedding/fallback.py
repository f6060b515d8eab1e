"""The fallback while the model cannot be used."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from riglm.domain.prediction import Vector
from riglm.ports.embedder import EmbedderPort, EmbedderStatus, EmbedderUnavailable

_log = logging.getLogger("riglm.embedder")


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
        """Open both."""
        self._closing = False
        self._stand_in.__enter__()
        self._first.__enter__()
        self.embed([""])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close both."""
        self._closing = True
        try:
            self._first.__exit__(kind, error, trace)
        finally:
            self._stand_in.__exit__(kind, error, trace)

    @property
    def model(self) -> str:
        """The model of the last answer."""
        return self._acting.model

    def embed(self, texts: Sequence[str]) -> Vector:
        """Return one row for each text, by whichever model responds."""
        try:
            rows = self._first.embed(texts)
        except EmbedderUnavailable as error:
            if self._closing:
                raise
            if self._acting is not self._stand_in:
                _log.warning(
                    "the embedder's model cannot be used; a fallback is used until it can",
                    extra={"stand_in": self._stand_in.model, "reason": str(error)},
                )
                self._acting = self._stand_in
            return self._stand_in.embed(texts)
        self._acting = self._first
        return rows

    def status(self) -> EmbedderStatus:
        """The source of the next response, next to the configured one."""
        first = self._first.status()
        if first.status == "ready" or (first.status == "loading" and self._acting is self._first):
            return first
        acting = self._stand_in.status()
        return replace(acting, provider=first.provider, model=first.model, is_fallback_active=True)
