"""Vectors that were computed before."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Protocol

from riglm.domain.prediction import Vector


class VectorCachePort(Protocol):
    """Keeps vectors by model and text, the most lately used ones. What it gives cannot be changed.

    Methods block; a failure arrives as `AnalyticsUnavailable`.
    """

    @abstractmethod
    def get_many(self, model: str, hashes: Sequence[str]) -> Mapping[str, Vector]:
        """The vectors (or matrices) that are known, by hash of the text."""

    @abstractmethod
    def put_many(self, model: str, vectors: Mapping[str, Vector]) -> None:
        """Keep vectors; what is there already stays, and what holds a number that is not finite is left out."""
