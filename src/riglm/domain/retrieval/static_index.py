"""The static index: how well each tool's description fits a request."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final

import numpy as np

from riglm.domain.everyday import MAX_IMPLIED, ImpliedTools
from riglm.domain.prediction import Context, Scores, Vector
from riglm.domain.retrieval.scoring import SERVER_WEIGHT, DenseIndex, LexicalIndex, level, standardized, suitability
from riglm.domain.retrieval.words import request_texts, words
from riglm.domain.tool import ToolProfile

WORDS_WITHOUT_MEANING: Final = "riglm/hash-"
"""How the names of models begin whose vectors know words and no meaning."""

SENTENCES_WEIGHT: Final = 0.7
"""Weight of the sentence that fits a tool best relative to the whole request."""

_MAX_STEMS: Final = 512
_MENTIONED: Final = 10
_STEP: Final = 1e-6
_ENOUGH_COVERAGE: Final = 0.3
_ENOUGH_WORDS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalWeights:
    """How much standardised scores count."""

    lexical: float
    semantic: float


REAL_MODEL: Final = SignalWeights(lexical=0.35, semantic=0.65)
FALLBACK_MODEL: Final = SignalWeights(lexical=0.65, semantic=0.35)
WORDS_ALONE: Final = SignalWeights(lexical=1.0, semantic=0.0)


class StaticIndex:
    """Words at once, meaning as soon as there are vectors."""

    def __init__(self, tools: Sequence[ToolProfile]) -> None:
        self.lexical = LexicalIndex(tools)
        self._names = [tool.name for tool in tools]
        self._servers = [tool.server for tool in tools]
        self._implied = ImpliedTools([(tool.name, tool.description) for tool in tools])
        self._dense: Mapping[str, DenseIndex] = {}

    def with_vectors(self, model: str, vectors: Mapping[str, Vector]) -> "StaticIndex":
        """Return the same with vectors of the tools, by name, in addition to those of other models."""
        other = copy(self)
        dense = DenseIndex(model, self._names, self._servers, vectors)
        other._dense = {**self._dense, model: dense}  # noqa: SLF001  # a copy
        return other

    def weights(self, model: str) -> SignalWeights:
        """How much words and meaning count for what was embedded with a model."""
        if model not in self._dense:
            return WORDS_ALONE
        return FALLBACK_MODEL if model.startswith(WORDS_WITHOUT_MEANING) else REAL_MODEL

    def evidence(self, context: Context) -> Scores:
        """Return how far each tool is above the mean, in deviations; zeros where the context has no information.

        Everyday tools that the context implies and does not mention come right after the first ten, or after all
        outliers if these are fewer.
        """
        stems = _stems(context.text)
        if not self._names or not stems:
            return np.zeros(len(self._names))
        evidence = self._described(context, stems)
        if len(evidence) > _MENTIONED:
            last = float(np.partition(evidence, -_MENTIONED)[-_MENTIONED])
            implied = [row for row in self._implied.find(context.text) if evidence[row] < last][:MAX_IMPLIED]
            evidence[implied] = max(last, _STEP) * (1 - _STEP * np.arange(1, len(implied) + 1))
        return evidence

    def _described(self, context: Context, stems: Sequence[Sequence[str]]) -> Scores:
        lexical = standardized(np.stack([self.lexical.scores(part) for part in stems]))
        compared = self._compared(context)
        if compared is None:
            return _with_sentences(standardized(lexical[0]), lexical[1:])
        dense, queries = compared
        weights = self.weights(dense.model)
        semantic = lexical[[min(row, len(lexical) - 1) for row in range(len(queries))]]
        near = dense.scores(queries, dense.similarities(queries))
        semantic = np.minimum(semantic, near.max(axis=1, keepdims=True))  # words know no meaning better than vectors do
        semantic[:, dense.rows] = near
        both = min(len(lexical), len(queries))
        lexical = self._confidence(stems[0]) * level(lexical[:both], semantic[:both])
        parts = weights.lexical * lexical + weights.semantic * semantic[:both]
        whole = parts[0].copy()
        whole[dense.rows] += weights.semantic * SERVER_WEIGHT * dense.server_scores(queries[0])
        return _with_sentences(standardized(whole), parts[1:])

    def _confidence(self, stems: Sequence[str]) -> float:
        """Return how far words count: fully once one tool has two words of a request, or three tenths of them.

        A request in other words than the tools' own shares some by chance, and these mislead.
        """
        enough = min(_ENOUGH_COVERAGE, _ENOUGH_WORDS / max(len(set(stems)), 1))
        return min(1.0, float(self.lexical.coverage(stems).max()) / enough)

    def similarity(self, context: Context) -> tuple[float | None, Scores]:
        """The best cosine of any part of a request, and each tool's; None and zeros where there is no meaning."""
        each = np.zeros(len(self._names))
        compared = self._compared(context)
        if compared is None or compared[0].model.startswith(WORDS_WITHOUT_MEANING):
            return None, each
        dense, queries = compared
        each[dense.rows] = dense.similarities(queries).max(axis=0)
        return float(each.max(initial=0.0)), each

    def coverage(self, context: Context) -> Scores:
        """Return the share of the context's words, by rarity, that each tool has; between 0 and 1."""
        return self.lexical.coverage(words(context.text)[:_MAX_STEMS])

    def suitability(self, context: Context) -> float:
        """Return how well the best tool suits a context; under 0, nothing fits."""
        if not self._names:
            return -1.0
        best, _ = self.similarity(context)
        covered = float(self.coverage(context).max())
        found = suitability(best, covered, len(self._names))
        compared = self._compared(context)
        if compared is not None and len(compared[0].rows) < len(self._names):  # a tool without a vector may be meant
            found = max(found, suitability(None, covered, len(self._names)))
        return found

    def _compared(self, context: Context) -> tuple[DenseIndex, Vector] | None:
        """The vectors of the tools that those of the context, as rows, can be compared with."""
        dense = self._dense.get(context.model)
        if context.vector is None or dense is None:
            return None
        rows = np.atleast_2d(np.asarray(context.vector, np.float32))
        return (dense, rows) if len(rows) and dense.fits(rows) else None


def _stems(text: str) -> list[list[str]]:
    return [words(part)[:_MAX_STEMS] for part in request_texts(text)]


def _with_sentences(whole: Scores, sentences: Scores) -> Scores:
    if not len(sentences):
        return whole
    return np.asarray(whole + SENTENCES_WEIGHT * standardized(sentences.max(axis=0)))
