from dataclasses import replace

import numpy as np
import pytest

from riglm.domain.prediction import Context
from riglm.domain.retrieval.pairs import LearnedPairs
from tests.unit.domain.retrieval.samples import context

HASHES = {"deploy": "d1", "rollback": "r1"}


def _learn(pairs: LearnedPairs, text: str, tool: str = "deploy", signal: float = 1.0, at: float = 0.0, **more):
    asked = more.pop("context", None) or context(text)
    return pairs.learn(asked, tool, signal, scope=more.get("scope", ""), at=at, description_hash=HASHES[tool])


def test_the_same_lesson_is_one_pair_whose_confidence_moves_by_a_fifth():
    pairs = LearnedPairs()
    first = _learn(pairs, "ship it", signal=1.0)
    second = _learn(pairs, "ship it", signal=1.5, at=9.0)
    assert (first.id, len(pairs)) == (second.id, 1)
    assert second.confidence == pytest.approx(0.8 * 1.0 + 0.2 * 1.5)
    assert (second.uses, second.updated_at) == (2, 9.0)


@pytest.mark.parametrize("other", [{"text": "ship parcels"}, {"tool": "rollback"}, {"scope": "anna"}])
def test_another_text_tool_or_scope_is_another_pair(other):
    pairs = LearnedPairs()
    first = _learn(pairs, "ship it")
    assert _learn(pairs, **{"text": "ship it", **other}).id != first.id
    assert len(pairs) == 2


def test_a_pair_keeps_no_words_of_its_context():
    pair = _learn(LearnedPairs(), "secret zeppelin")
    assert "zeppelin" not in repr(pair)
    assert len(pair.terms) == 2


def test_the_same_context_asks_for_the_tool_that_was_used_in_it():
    pairs = LearnedPairs()
    _learn(pairs, "ship it to production")
    votes = pairs.votes(context("ship it to production"), "", HASHES)
    assert votes.by_tool == {"deploy": 1.0}
    assert votes.trust == pytest.approx(1.0)


def test_a_tool_that_came_along_once_counts_less_than_one_that_comes_every_time():
    pairs = LearnedPairs()
    for _ in range(9):
        _learn(pairs, "ship it")
    _learn(pairs, "ship it", tool="rollback", signal=1.5)
    votes = pairs.votes(context("ship it"), "", HASHES).by_tool
    assert votes["deploy"] == pytest.approx(1.0)
    assert votes["rollback"] == pytest.approx(0.5)


def test_a_context_that_shares_nothing_asks_for_no_tool():
    pairs = LearnedPairs()
    pairs.learn(Context(text="ship it"), "deploy", 1.0, scope="", at=0.0, description_hash="d1")
    assert pairs.votes(Context(text="violin"), "", HASHES).by_tool == {}


def test_contexts_are_matched_by_words_when_there_are_no_vectors():
    pairs = LearnedPairs()
    pairs.learn(Context(text="ship the release"), "deploy", 1.0, scope="", at=0.0, description_hash="d1")
    assert pairs.votes(Context(text="a release to ship"), "", HASHES).by_tool == pytest.approx({"deploy": 1.0})


def test_vectors_of_different_models_are_matched_by_words_alone():
    pairs = LearnedPairs()
    _learn(pairs, "ship the release")
    other = replace(context("violin"), model="another", vector=context("ship the release").vector)
    assert pairs.votes(other, "", HASHES).by_tool == {}


def test_one_scope_does_not_learn_from_another_and_all_learn_from_what_is_shared():
    pairs = LearnedPairs()
    _learn(pairs, "ship it", scope="anna")
    assert pairs.votes(context("ship it"), "ben", HASHES).by_tool == {}
    assert pairs.votes(context("ship it"), "anna", HASHES).by_tool == pytest.approx({"deploy": 1.0})
    _learn(pairs, "ship it", tool="rollback")
    assert set(pairs.votes(context("ship it"), "ben", HASHES).by_tool) == {"rollback"}


def test_what_was_learned_of_another_description_does_not_vote():
    pairs = LearnedPairs()
    _learn(pairs, "ship it")
    assert pairs.votes(context("ship it"), "", {"deploy": "changed"}).by_tool == {}


def test_a_changed_description_forgets_what_was_learned_of_the_tool():
    pairs = LearnedPairs()
    gone = _learn(pairs, "ship it")
    _learn(pairs, "ship it", tool="rollback")
    assert pairs.forget_tool("deploy", "changed") == [gone.id]
    assert pairs.forget_tool("deploy", "changed") == []
    assert len(pairs) == 1


def test_learning_under_a_changed_description_starts_anew():
    pairs = LearnedPairs()
    _learn(pairs, "ship it", signal=1.5)
    pair = pairs.learn(context("ship it"), "deploy", 0.5, scope="", at=1.0, description_hash="d2")
    assert (pair.confidence, pair.uses, len(pairs)) == (0.5, 1, 1)


def test_confidence_grows_to_the_similarity_as_ten_lessons_come():
    pairs = LearnedPairs()
    grown = []
    for _ in range(12):
        grown.append(pairs.confidence(context("ship it"), ""))
        _learn(pairs, "ship it")
    assert grown[:3] == pytest.approx([0.0, 0.1, 0.2])
    assert grown[10:] == pytest.approx([1.0, 1.0])


def test_confidence_in_a_context_of_other_words_stays_low():
    pairs = LearnedPairs()
    for _ in range(20):
        _learn(pairs, "ship the release to production")
    assert pairs.confidence(context("tune my violin"), "") < 0.3


def test_pruning_keeps_within_the_bound_what_is_newest_and_surest():
    pairs = LearnedPairs()
    month = 30 * 86_400.0
    old = _learn(pairs, "old and sure", signal=1.5)
    for number in range(11):
        _learn(pairs, f"new number{number}", at=3 * month)
    assert pairs.pruned(20) == []
    gone = pairs.pruned(10)
    assert old.id in gone
    assert len(pairs) == 12 - len(gone) <= 10
    assert pairs.votes(context("new number0"), "", HASHES).by_tool == pytest.approx({"deploy": 1.0})


def test_what_was_restored_answers_as_what_was_learned():
    pairs = LearnedPairs()
    kept = [_learn(pairs, f"ship number{number}") for number in range(30)]
    restored = LearnedPairs()
    restored.restore(kept)
    asked = context("ship number3 again")
    assert restored.votes(asked, "", HASHES).by_tool == pytest.approx(pairs.votes(asked, "", HASHES).by_tool)
    assert restored.confidence(asked, "") == pytest.approx(pairs.confidence(asked, ""))
    again = restored.learn(context("ship number3"), "deploy", 1.0, scope="", at=1.0, description_hash="d1")
    assert (again.id, again.uses) == (kept[3].id, 2)


def test_votes_are_trusted_where_tools_recur_and_not_where_they_do_not():
    recurring, scattered = LearnedPairs(), LearnedPairs()
    for number in range(40):
        asked = context(f"ship parcel number{number}")
        recurring.learn(asked, "deploy", 1.0, scope="", at=0.0, description_hash="")
        scattered.learn(asked, f"tool{number}", 1.0, scope="", at=0.0, description_hash="")
    asked = context("ship parcel soon")
    assert recurring.votes(asked, "", {}).trust > 0.5
    assert scattered.votes(asked, "", {}).trust == 0.0


def test_a_tool_that_was_marked_as_wrong_gets_no_vote_and_gives_no_confidence():
    pairs = LearnedPairs()
    _learn(pairs, "ship it", signal=0.0)
    assert pairs.votes(context("ship it"), "", HASHES).by_tool == {"deploy": 0.0}
    assert pairs.confidence(context("ship it"), "") == 0.0


def test_learned_vectors_are_the_whole_context_only():
    assert np.array_equal(
        _learn(LearnedPairs(), "One two three. Four five six.").vector,
        context("One two three. Four five six.").vector[0],
    )


def test_without_the_key_neither_words_nor_contexts_can_be_guessed():
    mine, other, plain = (_learn(LearnedPairs(key), "zeppelin") for key in (b"m" * 32, b"o" * 32, b""))
    assert len({mine.terms, other.terms, plain.terms}) == 3
    assert len({mine.id, other.id, plain.id}) == 3
    assert (mine.terms, mine.id) == ((again := _learn(LearnedPairs(b"m" * 32), "zeppelin")).terms, again.id)
