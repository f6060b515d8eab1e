"""Learned pairs, the dynamic index: which tools were used in contexts like this one."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Final, NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from riglm.domain.learning import LearnedPair
from riglm.domain.prediction import Context, Scores, Vector
from riglm.domain.retrieval.contexts import LearnedContexts
from riglm.domain.retrieval.words import hashed, words

_MEMORY: Final = 200
_DOUBT: Final = 5.0


class PairReliability:
    """The share of examples that earlier ones predicted, over about the last two hundred, low at first."""

    def __init__(self) -> None:
        self._right = 0.0
        self._seen = 0.0

    def note(self, foretold: bool) -> None:
        """Add an example; `True` if its tool was among those of similar contexts."""
        keep = 1 - 1 / _MEMORY
        self._right = self._right * keep + foretold
        self._seen = self._seen * keep + 1

    @property
    def trust(self) -> float:
        """Between 0 and 1; the square of the share, so that being right one time in four counts for little."""
        return (self._right / (self._seen + _DOUBT)) ** 2


MAX_TERMS: Final = 64
"""Different words of a context that are remembered."""

MAX_SIMILAR: Final = 10
"""Learned contexts that are asked about another, the most similar ones."""

_UNRELATED: Final = 0.1  # a context that is no more similar than this does not vote
_RELATED: Final = 0.25  # from this similarity on, scores count as much as past predictions were right
_NARROWNESS: Final = 0.05
_HABIT: Final = 0.5  # a tool that came along once counts less where others come every time
_KEPT: Final = 0.8
_HALF_LIFE: Final = 30 * 86_400.0
_SAME: Final = 0.95
_CHECKED: Final = 200
_KEPT_WHEN_PRUNED: Final = 0.98


class PairScores(NamedTuple):
    """The scores of tools by similar contexts, how far to trust them, and the context confidence; all from 0 to 1."""

    by_tool: Mapping[str, float]
    trust: float
    confidence: float


_Key = tuple[str, str, bytes]

_NO_VECTOR: Final = np.zeros(0, np.float32)
_NO_VOTES: Final = PairScores({}, 0.0, 0.0)


class LearnedPairs:
    """Learns pairs on the event loop, and measures how well they predict each new example.

    Votes count by that record: where tools recur they outweigh descriptions, where they do not they fade.
    """

    def __init__(self, key: bytes = b"") -> None:
        """`key`, of at most 64 bytes, keeps from those who have it not what words and contexts the pairs are of."""
        self._key = key
        self._contexts = LearnedContexts()
        self._numbers: dict[_Key, int] = {}
        self._keys: list[_Key] = []
        self._pairs: list[dict[str, LearnedPair]] = []  # of each context by tool, without vector and terms
        self._contexts_of: defaultdict[str, set[int]] = defaultdict(set)  # of each tool, by number
        self._size = 0
        self._reliability = PairReliability()

    def __len__(self) -> int:
        return self._size

    def learn(
        self, context: Context, tool: str, signal: float, *, scope: str, at: float, description_hash: str
    ) -> LearnedPair | None:
        """Learn that a tool was used in a context, at a time in seconds since the epoch; return the changed pair.

        A signal of 0 is negative feedback: it lowers the confidence of a known pair and changes nothing else, so it
        never raises a vote or the context confidence. Without a known pair nothing is learned.
        """
        vector, terms = _vector(context), self._terms(context.text)
        fresh = LearnedPair(
            id=self._identity(scope, context, tool),
            scope=scope,
            tool=tool,
            model=context.model if len(vector) else "",
            vector=vector,
            confidence=signal,
            uses=1,
            updated_at=at,
            description_hash=description_hash,
            terms=terms,
        )
        number = self._numbers.get(_key(fresh))
        known = self._pairs[number].get(tool) if number is not None else None
        if signal <= 0:
            pair = None if known is None else replace(_rejected(known), vector=vector, terms=terms)
        elif known is None or known.description_hash != description_hash:
            self._check(fresh, number)
            pair = fresh
        else:
            confidence = _KEPT * known.confidence + (1 - _KEPT) * signal
            pair = replace(fresh, id=known.id, confidence=confidence, uses=known.uses + 1)
        if pair is not None:
            self._put(pair)
        return pair

    def restore(self, pairs: Iterable[LearnedPair]) -> None:
        """Take back what was learned before, and see on a sample how reliable it is."""
        restored = list(pairs)
        for pair in restored:
            self._put(pair)
        for pair in restored[:: max(1, len(restored) // _CHECKED)]:
            self._check(pair, self._numbers[_key(pair)])

    def catch_up(self, pairs: Iterable[LearnedPair]) -> int:
        """Take what was learned elsewhere where it is newer than what is known here; how many there were."""
        count = 0
        for pair in pairs:
            number = self._numbers.get(_key(pair))
            known = self._pairs[number].get(pair.tool) if number is not None else None
            if known is None or known.updated_at < pair.updated_at:
                self._put(pair)
                count += 1
        return count

    def pruned(self, bound: int = 5000) -> list[UUID]:
        """Forget the oldest and least sure pairs when there are more than `bound`; the ids of those that went."""
        if self._size <= bound:
            return []
        places = [(number, tool) for number, pairs in enumerate(self._pairs) for tool in pairs]
        pairs = [self._pairs[number][tool] for number, tool in places]
        confidence = np.array([pair.confidence for pair in pairs])
        age = np.array([pair.updated_at for pair in pairs])
        order = np.argsort(-confidence * 0.5 ** ((age.max() - age) / _HALF_LIFE), kind="stable")
        most = int(bound * _KEPT_WHEN_PRUNED)  # leaves space, so that not every new example prunes again
        return self._forget([places[at] for at in order[most:]])

    def forget_tools(self, described: Mapping[str, str]) -> list[UUID]:
        """Forget what was learned of tools under other descriptions than these hashes; the ids of the pairs that went.

        It costs what these tools were taught, not what all were.
        """
        places = ((number, tool) for tool in described for number in self._contexts_of.get(tool, ()))
        return self._forget(
            [(number, tool) for number, tool in places if self._pairs[number][tool].description_hash != described[tool]]
        )

    def confidence(self, context: Context, scope: str, fingerprints: Mapping[str, str]) -> float:
        """Return the context confidence: the mean similarity of the ten most similar, times their number by ten.

        As for scores, only tools count whose description is unchanged.
        """
        return self.pair_scores(context, scope, fingerprints).confidence

    def pair_scores(self, context: Context, scope: str, fingerprints: Mapping[str, str]) -> PairScores:
        """What was used in similar contexts, among tools that still describe themselves as they did then."""
        if not self._pairs:
            return _NO_VOTES
        similarity = self._contexts.similarity(scope, context.model, _vector(context), self._terms(context.text))
        best = _best(similarity.overall)
        if not len(best):
            return _NO_VOTES
        similar = similarity.overall[best]
        shares = np.exp((similar - similar[0]) / _NARROWNESS)
        pair_scores: dict[str, float] = defaultdict(float)
        for number, share in zip(best, shares / shares.sum(), strict=True):
            pairs = self._pairs[number]
            most = max(1, *(pair.uses for pair in pairs.values()))
            for tool, pair in pairs.items():
                if _still_counts(pair, fingerprints):
                    pair_scores[tool] += float(share) * pair.confidence * (pair.uses / most) ** _HABIT
        nearest = float(similarity.meaning[best].max())
        relation = (nearest - _UNRELATED) / (_RELATED - _UNRELATED)
        sameness = (nearest - _SAME) / (1 - _SAME)
        return PairScores(
            by_tool={tool: min(1.0, vote) for tool, vote in pair_scores.items()},
            trust=max(self._reliability.trust * min(1.0, max(0.0, relation)), min(1.0, sameness)),
            confidence=self._confidence(similarity.meaning, fingerprints),
        )

    def _terms(self, text: str) -> tuple[int, ...]:
        return tuple(sorted(hashed(stem, self._key) for stem in list(dict.fromkeys(words(text)))[:MAX_TERMS]))

    def _identity(self, scope: str, context: Context, tool: str) -> UUID:
        said = "\0".join((scope, context.model, context.text, tool)).encode("utf-8", "surrogatepass")
        return UUID(bytes=blake2b(said, digest_size=16, key=self._key).digest(), version=5)

    def _confidence(self, meaning: Scores, fingerprints: Mapping[str, str]) -> float:
        left, total = MAX_SIMILAR, 0.0
        for number in _best(meaning):
            pairs = self._pairs[number].values()
            counted = (pair.uses for pair in pairs if pair.confidence > 0 and _still_counts(pair, fingerprints))
            uses = min(left, sum(counted))
            total += float(meaning[number]) * uses
            left -= uses
        return min(1.0, total / MAX_SIMILAR)

    def _check(self, pair: LearnedPair, number: int | None) -> None:
        """Note whether the contexts most like that of a pair, but itself, would have named its tool."""
        if not self._pairs:
            return
        overall = self._contexts.similarity(pair.scope, pair.model, pair.vector, pair.terms).overall
        if number is not None:
            overall[number] = -1.0
        self._reliability.note(any(pair.tool in self._pairs[like] for like in _best(overall)))

    def _put(self, pair: LearnedPair) -> None:
        key = _key(pair)
        number = self._numbers.get(key)
        if number is None:
            number = self._contexts.add(pair.scope, pair.model, pair.vector, pair.terms)
            self._numbers[key] = number
            self._keys.append(key)
            self._pairs.append({})
        pairs = self._pairs[number]
        self._size += pair.tool not in pairs
        self._contexts_of[pair.tool].add(number)
        pairs[pair.tool] = replace(pair, vector=_NO_VECTOR, terms=())

    def _forget(self, places: Iterable[tuple[int, str]]) -> list[UUID]:
        """Forget the pairs of these contexts, by number, and tools; their ids."""
        gone = []
        for number, tool in places:
            gone.append(self._pairs[number].pop(tool).id)
            self._contexts_of[tool].discard(number)
            if not self._pairs[number]:
                self._contexts.drop(number)
                del self._numbers[self._keys[number]]
        self._size -= len(gone)
        if self._contexts.is_hollow:
            self._compact()
        return gone

    def _compact(self) -> None:
        kept = self._contexts.compact().tolist()
        self._keys = [self._keys[number] for number in kept]
        self._pairs = [self._pairs[number] for number in kept]
        self._numbers = {key: number for number, key in enumerate(self._keys)}
        self._contexts_of = defaultdict(set)
        for number, pairs in enumerate(self._pairs):
            for tool in pairs:
                self._contexts_of[tool].add(number)


def _best(similar: Scores) -> NDArray[np.intp]:
    """The numbers of the most similar contexts, best first; none that shares nothing."""
    most = min(MAX_SIMILAR, len(similar))
    best = np.argpartition(-similar, most - 1)[:most]
    best = best[np.argsort(-similar[best], kind="stable")]
    return best[similar[best] > 0]


def _vector(context: Context) -> Vector:
    """The vector of the whole context."""
    if context.vector is None:
        return _NO_VECTOR
    return np.asarray(context.vector if context.vector.ndim == 1 else context.vector[0], np.float32)


def _still_counts(pair: LearnedPair, fingerprints: Mapping[str, str]) -> bool:
    """Whether the tool describes itself as it did when the pair was learned, or that is not known."""
    return pair.description_hash in ("", fingerprints.get(pair.tool, ""))


def _rejected(pair: LearnedPair) -> LearnedPair:
    """The pair after negative feedback, just new enough for other processes to take it and none to keep it longer."""
    updated_at = float(np.nextafter(pair.updated_at, np.inf))
    return replace(pair, confidence=_KEPT * pair.confidence, updated_at=updated_at)


def _key(pair: LearnedPair) -> _Key:
    said = pair.vector.tobytes() if len(pair.vector) else repr(pair.terms).encode()
    return pair.scope, pair.model, blake2b(said, digest_size=16).digest()
