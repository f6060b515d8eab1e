"""From candidates to the few that are given: floor, duplicates, shares of the two sources, order."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from riglm.domain.knowledge.provenance import TruncatedText, TrustTier, capped, trust_tier
from riglm.domain.knowledge.records import SnippetCandidate, content_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """A candidate as it is given: its text is the piece of it that fits, its hash is of that piece."""

    candidate: SnippetCandidate
    capped: TruncatedText
    content_hash: str

    @property
    def trust_tier(self) -> TrustTier:
        """How trustworthy it is."""
        return trust_tier(self.candidate.table, self.candidate.origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnippetQuery:
    """How many snippets are wanted, how similar they must be, and what share of them should be of the graph.

    `floor` may give way to `min_floor`, where a source that has candidates and a place would otherwise give none.
    """

    top_k: int
    mix: float
    floor: float
    min_floor: float

    @property
    def wants_graph(self) -> bool:
        """Whether there is a share for the graph."""
        return self.mix > 0

    @property
    def wants_thoughts(self) -> bool:
        """Whether there is a share for thoughts."""
        return self.mix < 1


def selected(
    request: SnippetQuery, thoughts: Sequence[SnippetCandidate], graph: Sequence[SnippetCandidate]
) -> tuple[list[Snippet], float]:
    """The snippets to give, the most similar first, and the floor that was used.

    A source without a share takes no part: a duplicate in it leaves the other's in its place.
    """
    thoughts = thoughts if request.wants_thoughts else ()
    graph = graph if request.wants_graph else ()
    floor = floor_for(request, thoughts, graph)
    hits = [each for each in (*thoughts, *graph) if each.score >= floor]
    unique = _unique(sorted(hits, key=_rank))
    of_graph = [each for each in unique if each.candidate.table.is_graph]
    of_thoughts = [each for each in unique if not each.candidate.table.is_graph]
    graph_slots, thought_slots = allocated(request.top_k, request.mix, len(of_graph), len(of_thoughts))
    picked = [*of_graph[:graph_slots], *of_thoughts[:thought_slots]]
    return sorted(picked, key=lambda each: _rank(each.candidate)), floor


def floor_for(request: SnippetQuery, thoughts: Sequence[SnippetCandidate], graph: Sequence[SnippetCandidate]) -> float:
    """The floor, lowered just so far that each wanted source with candidates gives one, and never below the least.

    Of one place there is nothing to share: then it is lowered only where no source gives one, and for the best of all.
    Where no candidate reaches even the least one, that is the floor.
    """
    wanted = ((graph, request.wants_graph), (thoughts, request.wants_thoughts))
    best = [max(each.score for each in source) for source, is_wanted in wanted if source and is_wanted]
    least = min(request.floor, request.min_floor)
    reachable = [score for score in best if score >= least]
    if not reachable:
        return least
    return min(request.floor, max(reachable) if request.top_k == 1 else min(reachable))


def allocated(top_k: int, mix: float, graph: int, thoughts: int) -> tuple[int, int]:
    """Return how many of the graph and how many thoughts to return, given the number of each.

    The graph gets its share, rounded half up; each source that has any gets at least one unless the share leaves it
    nothing at all; and what one source cannot fill goes to the other. A share of 0 or 1 means one source alone.
    """
    if mix <= 0 or mix >= 1:
        return (min(graph, top_k), 0) if mix >= 1 else (0, min(thoughts, top_k))
    graph_slots = math.floor(mix * top_k + 0.5)
    if top_k > 1 and graph and thoughts:
        graph_slots = min(max(graph_slots, 1), top_k - 1)
    thought_slots = top_k - graph_slots
    graph_slots += max(0, thought_slots - thoughts)
    thought_slots += max(0, top_k - thought_slots - graph)
    return min(graph, graph_slots), min(thoughts, thought_slots)


def _unique(ranked: Iterable[SnippetCandidate]) -> list[Snippet]:
    """Return one snippet for each piece, and for each equal text of any source; the best one stays."""
    pieces, hashes, unique = set(), set(), []
    for candidate in ranked:
        piece = (candidate.table, candidate.key)
        cut = capped(candidate.text)
        hash_ = content_hash(cut.text)
        if piece not in pieces and hash_ not in hashes:
            unique.append(Snippet(candidate=candidate, capped=cut, content_hash=hash_))
        pieces.add(piece)
        hashes.add(hash_)
    return unique


def _rank(candidate: SnippetCandidate) -> tuple[float, bool, str]:
    """The most similar first; of equals the graph, then by key, so that the same question has the same answer."""
    return (-candidate.score, not candidate.table.is_graph, candidate.key)
