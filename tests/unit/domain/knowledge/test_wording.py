"""Pieces are found by words that say whom they are about."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riglm.domain.knowledge.provenance import MAX
from riglm.domain.knowledge.records import Relation, entity_text, searched_text, sentence
from tests.contracts.knowledge_contract import a_thought, an_entity, an_observation


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


@settings(max_examples=50)
@given(st.lists(st.text(max_size=300), max_size=20))
def test_relations_are_whole_and_as_many_as_fit_a_snippet(names):
    text = entity_text("Alice", "person", [_relation("Alice", "knows", name) for name in names])
    assert len(text) <= MAX
    told = {f"Alice knows {name}." for name in names}
    left = text.removeprefix("Alice (person).")
    while left:
        first = max((words for words in told if left.startswith(f" {words}")), key=len)
        told.discard(first)
        left = left.removeprefix(f" {first}")
