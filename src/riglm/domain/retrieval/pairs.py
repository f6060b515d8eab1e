"""Learned pairs, the dynamic index: which tools were used in contexts like this one."""

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Final, NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from riglm.domain.learning import LearnedPair
from riglm.domain.prediction import Context, Scores, Vector
from riglm.domain.retrieval.contexts import GrowingRows, LearnedContexts, Names
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
_MAX_USED: Final = 10_000
_KEPT_WHEN_PRUNED: Final = 0.98


class PairScores(NamedTuple):
    """The scores of tools by similar contexts, how far to trust them, and the context confidence; all from 0 to 1.

    The confidence is the mean similarity of the ten most similar contexts, times their number by ten.
    """

    by_tool: Mapping[str, float]
    trust: float
    confidence: float


_NO_VECTOR: Final = np.zeros(0, np.float32)
_NO_VOTES: Final = PairScores({}, 0.0, 0.0)

_ROW: Final = np.dtype("i4, i4, i4, i8, f8, f8, V16")  # a tenth of what an object takes
_ROW.names = ("context", "tool", "description", "uses", "confidence", "updated_at", "id")


class LearnedPairs:
    """Learns pairs on the event loop, and measures how well they predict each new example.

    Votes count by that record: where tools recur they outweigh descriptions, where they do not they fade.
    """

    def __init__(self, key: bytes = b"") -> None:
        """`key`, of at most 64 bytes, keeps from those who have it not what words and contexts the pairs are of."""
        self._key = key
        self._contexts = LearnedContexts()
        self._context_keys = GrowingRows(0, np.uint64)
        self._pairs = GrowingRows(0, _ROW)
        self._tools = Names()
        self._descriptions = Names()
        self._reliability = PairReliability()
        self._used: OrderedDict[int, None] = OrderedDict()
        self._last_terms: tuple[str, tuple[int, ...]] = ("", ())

    def __len__(self) -> int:
        return len(self._pairs)

    def learn(
        self,
        context: Context,
        tool: str,
        signal: float,
        *,
        scope: str,
        at: float,
        description_hash: str,
        session: UUID | None = None,
    ) -> LearnedPair | None:
        """Learn that a tool was used in a context, at a time in seconds since the epoch; return the changed pair.

        A signal of 0 is negative feedback: it lowers the confidence of a known pair and changes nothing else, so it
        never raises a vote or the context confidence. Without a known pair nothing is learned. Of one `session` a pair
        counts once among the uses.
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
        number = self._find_context(_context_key(fresh))
        known = self._find(number, tool)
        if signal <= 0:
            if known is None:
                return None
            pair = _rejected(self._known(fresh, known))
        elif known is None or (before := self._known(fresh, known)).description_hash != description_hash:
            self._check(fresh, number)
            self._is_new_use(fresh.id, session)
            pair = fresh
        else:
            confidence = _KEPT * before.confidence + (1 - _KEPT) * signal
            uses = before.uses + self._is_new_use(before.id, session)
            pair = replace(fresh, id=before.id, confidence=confidence, uses=uses)
        self._put(pair)
        return pair

    def restore(self, pairs: Iterable[LearnedPair]) -> None:
        """Take back what was learned before, and see on a sample how reliable it is."""
        restored = list(pairs)
        for pair in restored:
            self._put(pair)
        for pair in restored[:: max(1, len(restored) // _CHECKED)]:
            self._check(pair, self._find_context(_context_key(pair)))

    def catch_up(self, pairs: Iterable[LearnedPair]) -> int:
        """Take what was learned elsewhere where it is newer than what is known here; how many there were."""
        count = 0
        for pair in pairs:
            known = self._find(self._find_context(_context_key(pair)), pair.tool)
            if known is None or self._pairs.rows["updated_at"][known] < pair.updated_at:
                self._put(pair)
                count += 1
        return count

    def pruned(self, bound: int = 5000) -> list[UUID]:
        """Forget the oldest and least sure pairs when there are more than `bound`; the ids of those that went."""
        if len(self) <= bound:
            return []
        pairs = self._pairs.rows
        age = pairs["updated_at"].max() - pairs["updated_at"]
        order = np.argsort(-pairs["confidence"] * 0.5 ** (age / _HALF_LIFE), kind="stable")
        most = int(bound * _KEPT_WHEN_PRUNED)  # leaves space, so that not every new example prunes again
        return self._forget(order[most:])

    def forget_tools(self, described: Mapping[str, str]) -> list[UUID]:
        """Forget what was learned of tools under other descriptions than these hashes; the ids of those that went."""
        unknown = -2
        current = np.full(len(self._tools) + 1, unknown)  # the last is of tools of which nothing was learned
        for tool, description_hash in described.items():
            current[self._tools.find(tool)] = self._descriptions.find(description_hash)
        current = current[self._pairs.rows["tool"]]
        return self._forget(np.flatnonzero((current != unknown) & (current != self._pairs.rows["description"])))

    def pair_scores(self, context: Context, scope: str, fingerprints: Mapping[str, str]) -> PairScores:
        """What was used in similar contexts, among tools that still describe themselves as they did then."""
        if not len(self):
            return _NO_VOTES
        similarity = self._contexts.similarity(scope, context.model, _vector(context), self._terms(context.text))
        best = _best(similarity.overall)
        if not len(best):
            return _NO_VOTES
        similar = similarity.overall[best]
        shares = np.exp((similar - similar[0]) / _NARROWNESS)
        pair_scores: dict[str, float] = defaultdict(float)
        for pairs, share in zip(self._pairs_of(best), shares / shares.sum(), strict=True):
            votes = share * pairs["confidence"] * (pairs["uses"] / max(1, pairs["uses"].max())) ** _HABIT
            for tool, is_counted, vote in zip(
                pairs["tool"].tolist(), self._still_count(pairs, fingerprints), votes.tolist(), strict=True
            ):
                if is_counted:
                    pair_scores[self._tools[tool]] += vote
        nearest = float(similarity.meaning[best].max())
        relation = (nearest - _UNRELATED) / (_RELATED - _UNRELATED)
        sameness = (nearest - _SAME) / (1 - _SAME)
        return PairScores(
            by_tool={tool: min(1.0, vote) for tool, vote in pair_scores.items()},
            trust=max(self._reliability.trust * min(1.0, max(0.0, relation)), min(1.0, sameness)),
            confidence=self._confidence(similarity.meaning, fingerprints),
        )

    def _is_new_use(self, pair: UUID, session: UUID | None) -> bool:
        """Return True if a session has not used a pair before, among the latest uses."""
        if session is None:
            return True
        key = pair.int ^ session.int
        is_new = key not in self._used
        self._used[key] = None
        self._used.move_to_end(key)
        if len(self._used) > _MAX_USED:
            self._used.popitem(last=False)
        return is_new

    def _terms(self, text: str) -> tuple[int, ...]:
        if text != self._last_terms[0]:  # the calls of a session share a context
            terms = sorted(hashed(stem, self._key) for stem in list(dict.fromkeys(words(text)))[:MAX_TERMS])
            self._last_terms = (text, tuple(terms))
        return self._last_terms[1]

    def _identity(self, scope: str, context: Context, tool: str) -> UUID:
        said = "\0".join((scope, context.model, context.text, tool)).encode("utf-8", "surrogatepass")
        return UUID(bytes=blake2b(said, digest_size=16, key=self._key).digest(), version=5)

    def _confidence(self, meaning: Scores, fingerprints: Mapping[str, str]) -> float:
        best = _best(meaning)
        left, total = MAX_SIMILAR, 0.0
        for pairs, similarity in zip(self._pairs_of(best), meaning[best].tolist(), strict=True):
            counted = self._still_count(pairs, fingerprints) & (pairs["confidence"] > 0)
            uses = min(left, int(pairs["uses"][counted].sum()))
            total += similarity * uses
            left -= uses
        return min(1.0, total / MAX_SIMILAR)

    def _check(self, pair: LearnedPair, number: int | None) -> None:
        """Note whether the contexts most like that of a pair, but itself, would have named its tool."""
        if not len(self):
            return
        overall = self._contexts.similarity(pair.scope, pair.model, pair.vector, pair.terms).overall
        if number is not None:
            overall[number] = -1.0
        pairs = self._pairs.rows
        taught = pairs["context"][pairs["tool"] == self._tools.find(pair.tool)]
        self._reliability.note(not set(_best(overall).tolist()).isdisjoint(taught.tolist()))

    def _find_context(self, key: np.uint64) -> int | None:
        """The number of a context by its key, None if nothing was learned in it."""
        found = np.flatnonzero(self._context_keys.rows == key)
        return int(found[0]) if len(found) else None

    def _find(self, context: int | None, tool: str) -> int | None:
        """The place of the pair of a context and a tool, None if there is none."""
        if context is None:
            return None
        pairs = self._pairs.rows
        found = np.flatnonzero((pairs["context"] == context) & (pairs["tool"] == self._tools.find(tool)))
        return int(found[0]) if len(found) else None

    def _pairs_of(self, contexts: NDArray[np.intp]) -> Sequence[NDArray[np.void]]:
        """The pairs of each of these contexts."""
        is_near = np.zeros(len(self._contexts), bool)
        is_near[contexts] = True
        near = self._pairs.rows[is_near[self._pairs.rows["context"]]]
        return [near[near["context"] == context] for context in contexts]

    def _known(self, fresh: LearnedPair, place: int) -> LearnedPair:
        """The pair at a place, which has the tool and the context of `fresh`."""
        row = self._pairs.rows[place]
        return replace(
            fresh,
            id=UUID(bytes=row["id"].tobytes()),
            confidence=float(row["confidence"]),
            uses=int(row["uses"]),
            updated_at=float(row["updated_at"]),
            description_hash=self._descriptions[row["description"]],
        )

    def _still_count(self, pairs: NDArray[np.void], fingerprints: Mapping[str, str]) -> NDArray[np.bool_]:
        """Whether each tool describes itself as it did when the pair was learned, or that is not known."""
        tools, descriptions = pairs["tool"].tolist(), pairs["description"].tolist()
        return np.array(
            [
                self._descriptions[description] in ("", fingerprints.get(self._tools[tool], ""))
                for tool, description in zip(tools, descriptions, strict=True)
            ],
            np.bool_,
        )

    def _put(self, pair: LearnedPair) -> None:
        key = _context_key(pair)
        context = self._find_context(key)
        known = self._find(context, pair.tool)
        if context is None:
            context = self._contexts.add(pair.scope, pair.model, pair.vector, pair.terms)
            self._context_keys.append(key)
        names = (self._tools.add(pair.tool), self._descriptions.add(pair.description_hash))
        row = (context, *names, pair.uses, pair.confidence, pair.updated_at, pair.id.bytes)
        if known is None:
            self._pairs.append(row)
        else:
            self._pairs.rows[known] = row

    def _forget(self, places: NDArray[np.intp]) -> list[UUID]:
        """Forget the pairs at these places; their ids."""
        gone = self._pairs.rows[places]
        if len(gone):
            self._pairs = GrowingRows.of(np.delete(self._pairs.rows, places))
            pairs = self._pairs.rows
            kept, pairs["context"] = np.unique(pairs["context"], return_inverse=True)
            self._contexts.keep(kept)
            self._context_keys = self._context_keys.chosen(kept)
            pairs["tool"] = self._tools.keep(pairs["tool"])
            pairs["description"] = self._descriptions.keep(pairs["description"])
        return [UUID(bytes=found.tobytes()) for found in gone["id"]]


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


def _rejected(pair: LearnedPair) -> LearnedPair:
    """The pair after negative feedback, just new enough for other processes to take it and none to keep it longer."""
    updated_at = float(np.nextafter(pair.updated_at, np.inf))
    return replace(pair, confidence=_KEPT * pair.confidence, updated_at=updated_at)


def _context_key(pair: LearnedPair) -> np.uint64:
    """A number for the scope, model and words or meaning of a context."""
    said = pair.vector.tobytes() if len(pair.vector) else repr(pair.terms).encode()
    where = f"{pair.scope}\0{pair.model}\0".encode("utf-8", "surrogatepass")
    return np.uint64(int.from_bytes(blake2b(where + said, digest_size=8).digest(), "big"))
