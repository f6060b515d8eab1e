"""Turns texts into vectors."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol, Self, runtime_checkable

from riglm.domain.errors import RiglmError
from riglm.domain.prediction import Vector


class EmbedderUnavailableError(RiglmError):
    """The embedder cannot answer now: it could not be loaded, ended, or did not answer in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderStatus:
    """The actual state of the embedder, next to the configured one; the fields of the capability signal.

    The defaults are those of an embedder that was not needed yet.
    """

    provider: str
    model: str
    status: Literal["not_loaded", "loading", "ready", "unavailable"] = "not_loaded"
    actual_provider: str = "none"
    actual_model: str = ""
    dimensions: int = 0
    is_fallback_active: bool = False
    semantic_quality: Literal["high", "low", "none"] = "none"


@runtime_checkable
class EmbedderPort(Protocol):
    """A model that turns text into vectors.

    Methods block; callers keep them off the event loop. Nothing here reaches for a network. Opened before use and
    closed after it; may be used by one thread at a time.
    """

    @abstractmethod
    def __enter__(self) -> Self:
        """Load the model, or its fallback."""

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the model's memory back."""

    @property
    @abstractmethod
    def model(self) -> str:
        """The identity of the vectors that are made now: name and, where it has one, revision of the model."""

    @abstractmethod
    def embed(self, texts: Sequence[str]) -> Vector:
        """Return one row of unit length for each text; equal texts give equal rows in any batch.

        Raises:
            EmbedderUnavailableError: the model does not answer.
        """

    def embed_public(self, texts: Sequence[str]) -> Vector:
        """As `embed`, of public texts, like those of tools: their vectors may be kept permanently.

        Raises:
            EmbedderUnavailableError: the model does not answer.
        """
        return self.embed(texts)

    def find_public(self, texts: Sequence[str]) -> Sequence[Vector | None]:
        """Return the vectors of public texts that were kept, None for the others; the model is not asked."""
        return [None] * len(texts)

    @abstractmethod
    def status(self) -> EmbedderStatus:
        """The model that is used now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedders:
    """One model, with and without a fallback.

    `always` never fails, and opens and closes the model. `chosen` is the configured model only, or, if none is
    configured, the first that was loaded: it raises `EmbedderUnavailableError` if that model cannot answer.
    """

    always: EmbedderPort
    chosen: EmbedderPort


@runtime_checkable
class VectorCachePort(Protocol):
    """Stores the most recently used vectors by model and text. Returned arrays are read-only.

    Methods block; a failure arrives as `AnalyticsUnavailableError`.
    """

    @abstractmethod
    def get_many(self, model: str, hashes: Sequence[str]) -> Mapping[str, Vector]:
        """The vectors (or matrices) that are known, by hash of the text."""

    @abstractmethod
    def put_many(self, model: str, vectors: Mapping[str, Vector]) -> None:
        """Keep vectors; what is there already stays, and what holds a number that is not finite is left out."""
