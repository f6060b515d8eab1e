"""Retrieval: how well descriptions fit a request, which tools fit a context, and what a search finds."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import permutations
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from riglm.domain.everyday import MAX_IMPLIED, ImpliedTools
from riglm.domain.prediction import Context, Relevance, Scores, ToolMatch, ToolSearchResult, Vector
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.domain.retrieval.scoring import (
    SERVER_WEIGHT,
    DenseIndex,
    LexicalIndex,
    level,
    relative,
    standardized,
    suitability,
)
from riglm.domain.retrieval.words import MAX_REQUEST_LENGTH, request_texts, spelt, tool_text, words
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


def _stems(text: str) -> list[list[str]]:
    return [words(part)[:_MAX_STEMS] for part in request_texts(text)]


def _with_sentences(whole: Scores, sentences: Scores) -> Scores:
    if not len(sentences):
        return whole
    return np.asarray(whole + SENTENCES_WEIGHT * standardized(sentences.max(axis=0)))


# fitted by `python -m benchmarks.retrieval probability`
RANKING_WEIGHT: Final = 0.3
LIKENESS_WEIGHT: Final = 5.0
COVERAGE_WEIGHT: Final = 5.0
INTERCEPT: Final = 1.5

_MAX_LOG_ODDS: Final = 30.0


def log_odds(evidence: Scores) -> Scores:
    """Return for each tool how much its evidence exceeds that of all others: the log-odds of a softmax."""
    if not len(evidence):
        return evidence
    first = int(np.argmax(evidence))
    weights = np.exp(evidence - evidence[first])
    others = weights.sum() - weights
    others[first] = np.delete(weights, first).sum()  # exact where the difference would be lost in rounding
    with np.errstate(divide="ignore"):
        return np.asarray(np.clip(np.log(weights) - np.log(others), -_MAX_LOG_ODDS, _MAX_LOG_ODDS))


def probabilities(ranking: Scores, similarity: Scores, coverage: Scores) -> Scores:
    """Return for each tool the probability that the request asks for it.

    `ranking` is the score that tools are ranked by, in deviations; `similarity` the cosine of each tool, and `coverage`
    its share of the request's words. A request may ask for several tools, so the sum may exceed 1.
    """
    evidence = RANKING_WEIGHT * ranking + LIKENESS_WEIGHT * similarity + COVERAGE_WEIGHT * coverage
    return np.asarray(1 / (1 + np.exp(-(INTERCEPT + log_odds(evidence)))))


LEARNED_WEIGHT: Final = 6.0
"""Weight of fully trusted votes of similar contexts relative to descriptions."""

NEAR_MISSES: Final = 5
"""How many names are given of what came after the hits."""

SERVER_SHARE: Final = 0.4
"""Share of an answer that the tools of one server fill at their full score."""

SERVER_DISCOUNT: Final = 0.8
"""Factor of each further tool of that server, unless the tool was used in similar contexts."""

COPY_OVERLAP: Final = 0.8
"""Share of the distinct words of two descriptions that both have if one is a copy."""

COPY_MARGIN: Final = 0.9
"""Share of a copy's score from which the earlier tool is preferred."""

_MIN_COPIED_WORDS: Final = 6
_TELLING: Final = 0.3
_LEARNED_EVIDENCE: Final = 10.0  # what fully trusted votes weigh in deviations
_MAX_WORDS_NAMED: Final = 4

passage = tool_text
"""What is embedded of a tool."""


class _Layout(NamedTuple):
    """Where names are: the row of each, the last for those that are unknown, and the places of each name."""

    names: tuple[str, ...]
    rows: NDArray[np.int64]
    places: Mapping[str, list[int]]


class Retriever:
    """Combines descriptions of tools with what use taught.

    Building it takes time and can be done on any thread; afterwards it is only read. The learned pairs are read as they
    are at each question.
    """

    def __init__(self, profiles: Sequence[ToolProfile], *, pairs: LearnedPairs | None = None) -> None:
        """Index words at once. Of two tools with one name the first counts."""
        tools = {tool.name: tool for tool in reversed(profiles)}
        self._tools = tuple(reversed(tools.values()))
        self._rows = {tool.name: row for row, tool in enumerate(self._tools)}
        self._fingerprints = {tool.name: tool.fingerprint for tool in self._tools}
        self._pairs = pairs if pairs is not None else LearnedPairs()
        self._lexical = LexicalIndex(self._tools)
        self._implied = ImpliedTools([(tool.name, tool.description) for tool in self._tools])
        self._dense: Mapping[str, DenseIndex] = {}
        self._layout = self._laid_out(())
        self._last_evidence: tuple[Context, Scores, Scores] | None = None  # calls share a context

    def with_vectors(self, model: str, vectors: Mapping[str, Vector]) -> "Retriever":
        """Return the same with vectors of one model, by tool, in addition to those of others.

        A tool that has none yet is found by its words.
        """
        other = copy(self)
        names, servers = list(self._rows), [tool.server for tool in self._tools]
        other._dense = {**self._dense, model: DenseIndex(model, names, servers, vectors)}  # noqa: SLF001  # a copy
        other._last_evidence = None  # noqa: SLF001  # a copy
        return other

    def with_pairs(self, pairs: LearnedPairs) -> "Retriever":
        """The same with other learned pairs."""
        other = copy(self)
        other._pairs = pairs  # noqa: SLF001  # a copy
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
        if not self._tools or not stems:
            return np.zeros(len(self._tools))
        evidence = self._described(context, stems)
        if len(evidence) > _MENTIONED:
            last = float(np.partition(evidence, -_MENTIONED)[-_MENTIONED])
            implied = [row for row in self._implied.find(context.text) if evidence[row] < last][:MAX_IMPLIED]
            evidence[implied] = max(last, _STEP) * (1 - _STEP * np.arange(1, len(implied) + 1))
        return evidence

    def _described(self, context: Context, stems: Sequence[Sequence[str]]) -> Scores:
        lexical = standardized(np.stack([self._lexical.scores(part) for part in stems]))
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
        return min(1.0, float(self._lexical.coverage(stems).max()) / enough)

    def similarity(self, context: Context) -> tuple[float | None, Scores]:
        """The best cosine of any part of a request, and each tool's; None and zeros where there is no meaning."""
        each = np.zeros(len(self._tools))
        compared = self._compared(context)
        if compared is None or compared[0].model.startswith(WORDS_WITHOUT_MEANING):
            return None, each
        dense, queries = compared
        each[dense.rows] = dense.similarities(queries).max(axis=0)
        return float(each.max(initial=0.0)), each

    def coverage(self, context: Context) -> Scores:
        """Return the share of the context's words, by rarity, that each tool has; between 0 and 1."""
        return self._lexical.coverage(words(context.text)[:_MAX_STEMS])

    def _suitability(self, context: Context) -> float:
        """Return how well the best tool suits a context; under 0, nothing fits."""
        best, _ = self.similarity(context)
        covered = float(self.coverage(context).max())
        found = suitability(best, covered, len(self._tools))
        compared = self._compared(context)
        if compared is not None and len(compared[0].rows) < len(self._tools):  # a tool without a vector may be meant
            found = max(found, suitability(None, covered, len(self._tools)))
        return found

    def _compared(self, context: Context) -> tuple[DenseIndex, Vector] | None:
        """The vectors of the tools that those of the context, as rows, can be compared with."""
        dense = self._dense.get(context.model)
        if context.vector is None or dense is None:
            return None
        rows = np.atleast_2d(np.asarray(context.vector, np.float32))
        return (dense, rows) if len(rows) and dense.fits(rows) else None

    def confidence(self, context: Context, *, scope: str = "") -> float:
        """The context confidence, between 0 and 1; see `PairScores`."""
        return self._pairs.pair_scores(context, scope, self._fingerprints).confidence

    def relevance(self, context: Context, candidates: Sequence[str] | None = None, *, scope: str = "") -> Relevance:
        """How well each candidate fits; all tools in their order when none are named. Unknown ones fit by use alone."""
        return self._judged(context, list(self._rows) if candidates is None else candidates, scope)[0]

    def search(
        self,
        query: Context,
        limit: int,
        *,
        scope: str = "",
        allowed: Callable[[str], bool] | None = None,
        may_abstain: bool = True,
    ) -> ToolSearchResult:
        """At most `limit` tools that fit, best first, among those that are allowed; none when nothing fits.

        Unless it `may_abstain`, the best matches are returned however poor they are. One server fills more than its
        share of the answer only with tools that fit clearly better than those of others.
        """
        names = [name for name in self._rows if allowed is None or allowed(name)]
        relevance, strength, example = self._judged(query, names, scope)
        found = self._ordered(names, relevance, limit)
        if not found or (may_abstain and example < _TELLING and self._suitability(query) < 0):
            return ToolSearchResult(hits=(), near=tuple(names[at] for at in found[:NEAR_MISSES]), abstained=True)
        _, similarity = self.similarity(query)
        rows = np.array([self._rows[name] for name in names], np.int64)
        chances = probabilities(strength * relevance.combined, similarity[rows], self.coverage(query)[rows])
        spoken = {stem: word for word, stem in spelt(query.text[:MAX_REQUEST_LENGTH])}
        hits = tuple(
            ToolMatch(
                name=names[at],
                score=float(relevance.combined[at]),
                probability=float(chance),
                why=self._why(self._rows[names[at]], spoken, similarity, float(relevance.learned[at])),
            )
            for at, chance in zip(found[:limit], np.minimum.accumulate(chances[found[:limit]]), strict=True)
        )
        return ToolSearchResult(hits=hits, near=tuple(names[at] for at in found[limit:]), abstained=False)

    def _ordered(self, names: Sequence[str], relevance: Relevance, limit: int) -> list[int]:
        """Return the places of the `limit` best tools and of the next `NEAR_MISSES`, best first.

        Further tools of one server get a discount, and copies come after what they copy.
        """
        scores = relevance.combined.copy()
        order = [int(at) for at in np.argsort(-scores, kind="stable") if scores[at] > 0]
        full = max(1, int(SERVER_SHARE * limit))
        counts: Counter[str] = Counter()
        for at in order:
            if not relevance.learned[at]:
                server = self._tools[self._rows[names[at]]].server
                counts[server] += 1
                scores[at] *= SERVER_DISCOUNT ** max(0, counts[server] - full)
        order.sort(key=lambda at: -scores[at])
        shown = order[: max(limit, 0) + NEAR_MISSES]
        self._put_copies_last([(at, self._rows[names[at]]) for at in shown if not relevance.learned[at]], scores)
        return sorted(shown, key=lambda at: -scores[at])

    def _put_copies_last(self, shown: Sequence[tuple[int, int]], scores: Scores) -> None:
        """Lower a tool below an earlier tool of another server that says the same and fits nearly as well."""
        said = {row: frozenset(words(self._tools[row].description)) for _, row in shown}
        for (at, row), (other_at, other) in permutations(shown, 2):
            if (
                other < row
                and scores[at] > scores[other_at] >= COPY_MARGIN * scores[at]
                and self._tools[other].server != self._tools[row].server
                and len(said[row] & said[other]) >= COPY_OVERLAP * max(len(said[row] | said[other]), _MIN_COPIED_WORDS)
            ):
                scores[at] = scores[other_at] * (1 - _STEP)

    def _judged(self, context: Context, names: Sequence[str], scope: str) -> tuple[Relevance, float, float]:
        """Return the relevance of tools, how distinct the best one is, and how strongly use supports one."""
        if names is not self._layout.names:
            self._layout = self._laid_out(names)
        layout = self._layout
        evidence, fit = self._evidence_and_fit(context)
        described = fit[layout.rows]
        pair_scores = self._pairs.pair_scores(context, scope, self._fingerprints)
        learned = np.zeros(len(names))
        for tool, vote in pair_scores.by_tool.items():
            learned[layout.places.get(tool, [])] = vote
        weight = LEARNED_WEIGHT * pair_scores.trust
        relevance = Relevance(
            described=described,
            learned=learned,
            combined=(described + weight * learned) / (1 + weight),
            confidence=pair_scores.confidence,
        )
        example = pair_scores.trust * float(learned.max(initial=0.0))
        return relevance, max(float(evidence.max(initial=0.0)), _LEARNED_EVIDENCE * example), example

    def _evidence_and_fit(self, context: Context) -> tuple[Scores, Scores]:
        """Return the evidence of the descriptions for a context, and each tool's share of the best, the last 0."""
        if self._last_evidence is None or self._last_evidence[0] is not context:
            evidence = self.evidence(context)
            self._last_evidence = context, evidence, np.append(relative(evidence), 0.0)
        return self._last_evidence[1:]

    def _laid_out(self, names: Sequence[str]) -> _Layout:
        places: dict[str, list[int]] = defaultdict(list)
        for place, name in enumerate(names):
            places[name].append(place)
        rows = np.array([self._rows.get(name, -1) for name in names], np.int64)
        return _Layout(names if isinstance(names, tuple) else tuple(names), rows, dict(places))

    def _why(self, row: int, spoken: Mapping[str, str], similarity: Scores, learned: float) -> str:
        shared = [word for stem, word in spoken.items() if self._lexical.has(row, stem)]
        reasons = []
        if shared:
            reasons.append("words: " + ", ".join(shared[:_MAX_WORDS_NAMED]))
        if similarity[row] > 0:
            reasons.append(f"meaning: {similarity[row]:.2f}")
        if learned > 0:
            reasons.append(f"used in similar contexts: {learned:.2f}")
        return "; ".join(reasons) or "nearest of what there is"
