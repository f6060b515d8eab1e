"""Which candidates are given: held to a slow and plain telling of the steps."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from riglm.domain.knowledge.provenance import Origin, Table, capped
from riglm.domain.knowledge.records import SnippetCandidate, content_hash
from riglm.domain.knowledge.snippet_selection import SnippetQuery, allocated, selected

TEXTS = ("one", "ONE ", "two", "three", "four", "five", "six", "seven", "eight. " * 200, "eight. " * 300)


def a_candidate(table: Table, key: str, score: float, text: str = "") -> SnippetCandidate:
    return SnippetCandidate(
        table=table, key=key, text=text or f"{table} {key}", origin=Origin.HUMAN, created_at=0.0, score=score
    )


def thoughts(*scores: float) -> list[SnippetCandidate]:
    return [a_candidate(Table.THOUGHTS, str(number), score) for number, score in enumerate(scores)]


def graph(*scores: float) -> list[SnippetCandidate]:
    return [a_candidate(Table.OBSERVATIONS, str(number), score) for number, score in enumerate(scores)]


def a_request(top_k: int = 10, mix: float = 0.6, floor: float = 0.25, min_floor: float = 0.15) -> SnippetQuery:
    return SnippetQuery(top_k=top_k, mix=mix, floor=floor, min_floor=min_floor)


def plainly(
    request: SnippetQuery, of_thoughts: list[SnippetCandidate], of_graph: list[SnippetCandidate]
) -> tuple[list[tuple[Table, str]], float]:
    """The steps one after the other: floor, duplicates, shares, order."""
    sources = {"graph": of_graph if request.mix > 0 else [], "thoughts": of_thoughts if request.mix < 1 else []}
    least = min(request.floor, request.min_floor)
    floor = request.floor
    to_cover = list(sources.values()) if request.top_k > 1 else [[*sources["graph"], *sources["thoughts"]]]
    for source in to_cover:
        if source and not any(each.score >= floor for each in source):
            reached = [each.score for each in source if each.score >= least]
            if reached:
                floor = max(reached)
    if not any(each.score >= least for source in sources.values() for each in source):
        floor = least
    hits = [each for source in sources.values() for each in source if each.score >= floor]
    hits.sort(key=lambda each: (-each.score, each.table is Table.THOUGHTS, each.key))
    kept: list[SnippetCandidate] = []
    for hit in hits:
        same_piece = any((hit.table, hit.key) == (other.table, other.key) for other in kept)
        if not same_piece and not any(hash_of(hit) == hash_of(other) for other in kept):
            kept.append(hit)
    left = {
        "graph": [each for each in kept if each.table is not Table.THOUGHTS],
        "thoughts": [each for each in kept if each.table is Table.THOUGHTS],
    }
    taken = shared_out(request, left["graph"], left["thoughts"])
    taken.sort(key=lambda each: (-each.score, each.table is Table.THOUGHTS, each.key))
    return [(each.table, each.key) for each in taken], floor


def shared_out(
    request: SnippetQuery, of_graph: list[SnippetCandidate], of_thoughts: list[SnippetCandidate]
) -> list[SnippetCandidate]:
    """The best of each source for its share, then whatever is left as long as there is room."""
    wanted = math.floor(request.mix * request.top_k + 0.5)
    if 0 < request.mix < 1 and request.top_k > 1 and of_graph and of_thoughts:
        wanted = min(max(wanted, 1), request.top_k - 1)
    taken = [*of_graph[:wanted], *of_thoughts[: request.top_k - wanted]]
    left = [*of_graph[wanted:], *of_thoughts[request.top_k - wanted :]]
    return [*taken, *left[: request.top_k - len(taken)]]


def hash_of(candidate: SnippetCandidate) -> str:
    return content_hash(capped(candidate.text).text)


_score = st.floats(-1, 1, width=16)
_thoughts = st.lists(
    st.builds(a_candidate, st.just(Table.THOUGHTS), st.sampled_from("abcdefghijkl"), _score, st.sampled_from(TEXTS)),
    max_size=9,
)
_graph = st.lists(
    st.builds(
        a_candidate,
        st.sampled_from([Table.ENTITIES, Table.OBSERVATIONS]),
        st.sampled_from("abcdefghijkl"),
        _score,
        st.sampled_from(TEXTS),
    ),
    max_size=9,
)
_requests = st.builds(
    a_request,
    top_k=st.integers(1, 12),
    mix=st.one_of(st.sampled_from([0.0, 0.5, 0.6, 1.0]), st.floats(0, 1)),
    floor=st.floats(0, 1),
    min_floor=st.floats(0.01, 0.99),
)


@settings(max_examples=200)
@given(_requests, _thoughts, _graph)
def test_the_same_is_selected_as_by_the_steps_taken_one_by_one(
    request: SnippetQuery, of_thoughts: list[SnippetCandidate], of_graph: list[SnippetCandidate]
):
    of_thoughts, of_graph = by_piece(of_thoughts), by_piece(of_graph)
    snippets, floor = selected(request, of_thoughts, of_graph)
    found = [(each.candidate.table, each.candidate.key) for each in snippets]
    assert (found, floor) == plainly(request, of_thoughts, of_graph)


def by_piece(candidates: list[SnippetCandidate]) -> list[SnippetCandidate]:
    """Candidates of which each piece has one text and score, as in a store; some are given twice."""
    first: dict[tuple[Table, str], SnippetCandidate] = {}
    return [first.setdefault((each.table, each.key), each) for each in candidates]


@given(_requests, _thoughts, _graph)
def test_a_selection_keeps_its_promises(
    request: SnippetQuery, of_thoughts: list[SnippetCandidate], of_graph: list[SnippetCandidate]
):
    snippets, floor = selected(request, of_thoughts, of_graph)
    assert len(snippets) <= request.top_k
    assert len({each.content_hash for each in snippets}) == len(snippets)
    assert all(each.candidate.score >= floor >= min(request.floor, request.min_floor) for each in snippets)
    assert sorted((each.candidate.score for each in snippets), reverse=True) == [e.candidate.score for e in snippets]


def test_half_a_place_is_the_graph_s():
    assert allocated(5, 0.5, 9, 9) == (3, 2)


def test_the_floor_does_not_give_way_for_a_source_that_there_is_no_place_for():
    snippets, floor = selected(a_request(top_k=1), thoughts(0.95), graph(0.16))
    assert ([each.candidate.score for each in snippets], floor) == ([0.95], 0.25)
    snippets, floor = selected(a_request(top_k=1), thoughts(0.22), graph(0.16))
    assert ([each.candidate.score for each in snippets], floor) == ([0.22], 0.22)
    snippets, floor = selected(a_request(top_k=2), thoughts(0.95), graph(0.16))
    assert ([each.candidate.score for each in snippets], floor) == ([0.95, 0.16], 0.16)


def test_a_floor_below_the_least_one_stays():
    snippets, floor = selected(a_request(floor=0.05), thoughts(0.06), [])
    assert (len(snippets), floor) == (1, 0.05)


def test_a_source_without_a_share_takes_no_text_away_from_the_other():
    same = "the same words"
    mine, theirs = a_candidate(Table.THOUGHTS, "1", 0.8, same), a_candidate(Table.OBSERVATIONS, "1", 0.8, same)
    for mix, kept in ((0.0, mine), (1.0, theirs)):
        snippets, _ = selected(a_request(mix=mix), [mine], [theirs])
        assert [each.candidate for each in snippets] == [kept]
