"""How well tools fit by meaning: their vectors and their servers' against those of a request."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from riglm.domain.prediction import Scores, Vector
from riglm.domain.retrieval.standard import size_share, standardised

SERVER_WEIGHT: Final = 0.3
"""Weight of the mean of a server's tools, relative to the tool itself."""


class DenseIndex:
    """The vectors of one model; `rows` are the tools that have one, in the order of the tools."""

    def __init__(self, model: str, names: Sequence[str], servers: Sequence[str], vectors: Mapping[str, Vector]) -> None:
        self.model = model
        self.rows = np.array([row for row, name in enumerate(names) if name in vectors], np.int64)
        size = len(next(iter(vectors.values()))) if vectors else 0
        self._matrix = np.zeros((len(self.rows), size), np.float32)
        for at, row in enumerate(self.rows):
            self._matrix[at] = vectors[names[row]]
        self._matrix[~np.isfinite(self._matrix).all(axis=1)] = 0.0
        self._mean = self._matrix.mean(axis=0) if len(self.rows) else np.zeros(size, np.float32)
        self._server, self._servers = self._grouped([servers[row] for row in self.rows])
        share = size_share(len(self.rows)) if len(self._servers) else 0.0
        self._generality = share * (self._matrix @ self._mean)
        self._spread = np.maximum(np.linalg.norm(self._matrix - self._mean, axis=1), 1e-6) ** (share - 1)

    def fits(self, queries: Vector) -> bool:
        """Whether vectors can be compared with these."""
        return len(self.rows) > 0 and bool(queries.shape[-1] == self._matrix.shape[1] and np.isfinite(queries).all())

    def similarities(self, queries: Vector) -> Vector:
        """The cosine of each query, a row, with each tool that has a vector, a column."""
        return queries @ self._matrix.T

    def scores(self, queries: Vector, similarities: Vector) -> Scores:
        """Return standardised scores for each query; what all tools have in common does not count.

        The larger a catalog of several servers, the more a tool loses for being near to all others: among thousands, a
        tool that is near to everything is near to any request.
        """
        scores = standardised((similarities - (queries @ self._mean)[:, None] - self._generality) * self._spread)
        return np.asarray(scores, np.float64)

    def server_scores(self, query: Vector) -> Scores:
        """Standardised scores of the tools' servers for one query; zeros where there is only one or none."""
        if not len(self._servers):
            return np.zeros(len(self.rows))
        return standardised((self._servers @ query)[self._server].astype(np.float64))

    def _grouped(self, servers: Sequence[str]) -> tuple[NDArray[np.int64], Vector]:
        """For each tool the row of its server, and the servers' mean vectors; none if no server has several tools."""
        keys = [server or f"\0{at}" for at, server in enumerate(servers)]
        number = {key: at for at, key in enumerate(dict.fromkeys(keys))}
        if not 1 < len(number) < len(keys):
            return np.zeros(0, np.int64), self._matrix[:0]
        server = np.array([number[key] for key in keys], np.int64)
        sums = np.zeros((len(number), self._matrix.shape[1]), np.float32)
        np.add.at(sums, server, self._matrix)
        return server, sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-6)
