import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riglm.domain.knowledge import (
    MAX_SNIPPET_LENGTH,
    Origin,
    Relation,
    SnippetCandidate,
    SnippetQuery,
    Table,
    TrustTier,
    capped,
    content_hash,
    entity_text,
    normalised,
    searched_text,
    selected,
    sentence,
    trust_tier,
)
from tests.contracts.knowledge_contract import a_thought, an_entity, an_observation


def test_the_steps_are_taken_in_their_order():
    assert normalised("  \uff26\uff21\uff2c\uff23\uff2f\uff2e\u00a0\t\nmigration ") == "falcon migration"
    assert normalised("ﬁ Ⅳ ①") == "fi iv 1"
    assert normalised("zero\u200bwidth\u2060 soft\u00adhyphen bell\x07") == "zerowidth softhyphen bell"
    assert normalised("İ") == "i̇"
    assert normalised("a \u200b b") == "a b"
    assert normalised("\u200b a \u200b") == "a"


def test_the_hash_is_the_same_for_ever():
    assert content_hash("") == "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    assert content_hash(" Falcon \n MIGRATION") == content_hash("falcon migration")
    assert content_hash("falcon migrations") != content_hash("falcon migration")


@given(st.text(max_size=60))
def test_case_and_white_space_make_no_difference(text: str):
    spread = "\t " + text.replace(" ", " \n ") + "\r\n"
    assert content_hash(spread) == content_hash(text)
    assert "\x00" not in normalised(text)


BLANKS_AND_UNSEEN = st.text(
    st.sampled_from("aA\u0301\u0307i \t\u200b\u200d\u00ad\x07\u2060\u00a0\u03a3\u0345\uff26"), max_size=12
)


@given(st.text(max_size=60) | BLANKS_AND_UNSEEN)
def test_a_normal_form_is_its_own_normal_form(text: str):
    assert normalised(normalised(text)) == normalised(text)


@given(st.text(alphabet="ab.!? \n😀", max_size=60), st.integers(1, 40))
def test_what_is_left_is_the_longest_that_ends_a_sentence_or_the_limit(text: str, longest: int):
    cut = capped(text, longest)
    assert text.startswith(cut)
    assert len(cut) <= longest
    if len(text) <= longest:
        assert cut == text
        return
    ends = [end for end in range(1, longest + 1) if text[end - 1] in ".!?" and re.match(r"\s", text[end : end + 1])]
    assert len(cut) == (max(ends) if ends and max(ends) >= longest * 0.75 else longest)


def test_an_abbreviation_at_the_beginning_is_not_all_that_is_left():
    assert capped("TODO. " + "x" * 900) == "TODO. " + "x" * (MAX_SNIPPET_LENGTH - 6)


@pytest.mark.parametrize(
    ("origin", "tier"), [("human", "green"), ("logged", "green"), ("tool", "amber"), ("model", "red")]
)
def test_thoughts_are_trusted_by_who_had_them(origin: str, tier: str):
    assert trust_tier(Table.THOUGHTS, Origin(origin)) == TrustTier(tier)


@pytest.mark.parametrize("origin", Origin)
@pytest.mark.parametrize("table", [Table.ENTITIES, Table.OBSERVATIONS])
def test_the_graph_is_trusted_whoever_wrote_it(table: Table, origin: Origin):
    assert trust_tier(table, origin) is TrustTier.GREEN


def test_ids_are_unique_over_all_tables():
    assert [table.public_id("1") for table in Table] == ["t:1", "e:1", "o:1"]
    assert [table.source_type for table in Table] == ["thought", "kg_entity", "kg_observation"]


def _relation(source: str, kind: str, target: str) -> Relation:
    return Relation(owner="", source=source, target=target, kind=kind)


RELATIONS = [_relation("Bob", "knows", "Alice"), _relation("Alice", "works_at", "Acme"), _relation("A", "is", "B")]


def test_what_is_searched_says_whom_the_graph_speaks_of():
    alice = an_entity("Alice")
    assert searched_text(an_observation(alice, "Likes tea")) == "About Alice. Likes tea"
    assert searched_text(alice) == "About Alice. Alice (person)"
    assert searched_text(a_thought("Tea at five")) == "Tea at five"


def test_an_entity_is_its_name_its_kind_and_its_relations_its_own_first():
    told = "Alice (person). Alice works at Acme. A is B. Bob knows Alice."
    assert entity_text("Alice", "person", RELATIONS) == told
    assert entity_text("alice", "person", reversed(RELATIONS)) == f"a{told[1:]}"
    assert entity_text("Alice", "", []) == "Alice."


@pytest.mark.parametrize(
    ("kind", "plain"),
    [("works_at", "works at"), ("worksAt", "works at"), ("WORKS_AT", "WORKS AT"), ("is  Married-to ", "is married to")],
)
def test_a_relation_s_kind_is_told_in_words(kind, plain):
    assert sentence(_relation("A", kind, "B")) == f"A {plain} B."


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
    return SnippetQuery(query="it", top_k=top_k, mix=mix, floor=floor, min_floor=min_floor)


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


@given(_requests, _thoughts, _graph)
def test_a_selection_keeps_its_promises(
    request: SnippetQuery, of_thoughts: list[SnippetCandidate], of_graph: list[SnippetCandidate]
):
    snippets, floor = selected(request, of_thoughts, of_graph)
    assert len(snippets) <= request.top_k
    assert len({each.content_hash for each in snippets}) == len(snippets)
    assert all(each.candidate.score >= floor >= min(request.floor, request.min_floor) for each in snippets)
    assert sorted((each.candidate.score for each in snippets), reverse=True) == [e.candidate.score for e in snippets]


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
