"""Turns texts into vectors."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol, Self

from riglm.domain.errors import RiglmError
from riglm.domain.prediction import Vector


class EmbedderUnavailable(RiglmError):
    """The embedder cannot answer now: it could not be loaded, ended, or did not answer in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderStatus:
    """The runtime truth of the embedder, beside what was configured; the fields of the capability signal."""

    provider: str
    model: str
    status: Literal["loading", "ready", "unavailable"]
    actual_provider: str
    actual_model: str
    dimensions: int
    is_fallback_active: bool
    semantic_quality: Literal["high", "low", "none"]

    @classmethod
    def before_loading(cls, provider: str, model: str) -> Self:
        """What is known of a configured embedder that nobody has needed yet."""
        return cls(
            provider=provider,
            model=model,
            status="loading",
            actual_provider="none",
            actual_model="",
            dimensions=0,
            is_fallback_active=False,
            semantic_quality="none",
        )


class EmbedderPort(Protocol):
    """A model that turns text into vectors.

    Methods block; callers keep them off the event loop. Nothing here reaches for a network. Opened before use and
    closed after it; may be used by one thread at a time.
    """

    @abstractmethod
    def __enter__(self) -> Self:
        """Load the model, or what stands in for it."""

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
        """One row of unit length for each text; equal texts give equal rows, in whatever company they come.

        Raises:
            EmbedderUnavailable: the model does not answer.
        """

    def embed_public(self, texts: Sequence[str]) -> Vector:
        """As `embed`, of texts that are nobody's own words, like those of tools: what they give may be kept for good.

        Raises:
            EmbedderUnavailable: the model does not answer.
        """
        return self.embed(texts)

    def find_public(self, texts: Sequence[str]) -> Sequence[Vector | None]:
        """Return the vectors of public texts that were kept, None for the others; the model is not asked."""
        return [None] * len(texts)

    @abstractmethod
    def status(self) -> EmbedderStatus:
        """What is at work now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedders:
    """One model, with a stand-in and without.

    `always` answers whatever happens, and opens and closes the model. `chosen` is the model alone that is configured,
    or where none is the first that was loaded: it raises `EmbedderUnavailable` where that one cannot answer.
    """

    always: EmbedderPort
    chosen: EmbedderPort
