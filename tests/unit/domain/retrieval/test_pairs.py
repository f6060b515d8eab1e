from dataclasses import replace
from uuid import uuid4

import pytest

from riglm.domain.retrieval.pairs import LearnedPairs
from tests.unit.domain.retrieval.samples import context

HASHES = {"deploy": "d1", "rollback": "r1"}


def _learn(pairs: LearnedPairs, text: str, tool: str = "deploy", signal: float = 1.0, at: float = 0.0, **more):
    asked = more.pop("context", None) or context(text)
    scope, session = more.get("scope", ""), more.get("session")
    return pairs.learn(asked, tool, signal, scope=scope, at=at, description_hash=HASHES[tool], session=session)


def test_the_same_lesson_is_one_pair_whose_confidence_moves_by_a_fifth():
    pairs = LearnedPairs()
    first = _learn(pairs, "ship it", signal=1.0)
    second = _learn(pairs, "ship it", signal=1.5, at=9.0)
    assert (first.id, len(pairs)) == (second.id, 1)
    assert second.confidence == pytest.approx(0.8 * 1.0 + 0.2 * 1.5)
    assert (second.uses, second.updated_at) == (2, 9.0)


def test_a_pair_keeps_no_words_of_its_context():
    pair = _learn(LearnedPairs(), "secret zeppelin")
    assert "zeppelin" not in repr(pair)
    assert len(pair.terms) == 2


def test_vectors_of_different_models_are_matched_by_words_alone():
    pairs = LearnedPairs()
    _learn(pairs, "ship the release")
    other = replace(context("violin"), model="another", vector=context("ship the release").vector)
    assert pairs.pair_scores(other, "", HASHES).by_tool == {}


def test_one_scope_does_not_learn_from_another_not_even_from_that_of_callers_without_a_name():
    pairs = LearnedPairs()
    _learn(pairs, "ship it", scope="anna")
    assert pairs.pair_scores(context("ship it"), "ben", HASHES).by_tool == {}
    assert pairs.pair_scores(context("ship it"), "anna", HASHES).by_tool == pytest.approx({"deploy": 1.0})
    _learn(pairs, "ship it", tool="rollback")
    assert pairs.pair_scores(context("ship it"), "ben", HASHES).by_tool == {}
    assert set(pairs.pair_scores(context("ship it"), "", HASHES).by_tool) == {"rollback"}


def test_a_changed_description_forgets_what_was_learned_of_the_tool():
    pairs = LearnedPairs()
    gone = _learn(pairs, "ship it")
    _learn(pairs, "ship it", tool="rollback")
    assert pairs.forget_tools({"deploy": "changed"}) == [gone.id]
    assert pairs.forget_tools({"deploy": "changed"}) == []
    assert len(pairs) == 1
    assert set(pairs.pair_scores(context("ship it"), "", HASHES).by_tool) == {"rollback"}


def _of_three_tools(count: int = 600):
    """Pairs of three tools, the hashes of these, and each pair by its id."""
    hashes = {"deploy": "d1", "rollback": "r1", "notify": "n1"}
    pairs, learned = LearnedPairs(), {}
    for number in range(count):
        tool = list(hashes)[number % 3]
        asked = context(f"ship number{number} to place{number % 7}")
        pair = pairs.learn(asked, tool, 1.0, scope="", at=float(number), description_hash=hashes[tool])
        learned[pair.id] = pair
    return pairs, hashes, learned


def _compared(pairs, hashes, left):
    """What pairs say about contexts, with what those say that learned only what is left."""
    fresh = LearnedPairs()
    fresh.catch_up(left)
    for text in ("ship number3 to place3", "ship number10 to place4", "place2 number300"):
        said, expected = (each.pair_scores(context(text), "", hashes) for each in (pairs, fresh))
        assert said.by_tool == pytest.approx(expected.by_tool)
        assert said.confidence == pytest.approx(expected.confidence)
    assert len(pairs) == len(fresh)


@pytest.mark.parametrize("changed", [("deploy",), ("deploy", "rollback")], ids=["a third", "most"])
def test_what_is_left_answers_as_if_the_rest_had_never_been_learned(changed):
    pairs, hashes, learned = _of_three_tools()
    gone = pairs.forget_tools(dict.fromkeys(changed, "changed"))
    assert len(gone) == 200 * len(changed)
    for each in gone:
        del learned[each]
    _compared(pairs, hashes, learned.values())
    again = pairs.learn(context("ship number3 to place3"), "deploy", 1.0, scope="", at=1e3, description_hash="d1")
    _compared(pairs, hashes, [*learned.values(), again])


def test_pruned_pairs_answer_as_if_the_rest_had_never_been_learned():
    pairs, hashes, learned = _of_three_tools()
    for each in pairs.pruned(100):
        del learned[each]
    _compared(pairs, hashes, learned.values())


def test_confidence_grows_to_the_similarity_as_ten_lessons_come():
    pairs = LearnedPairs()
    grown = []
    for _ in range(12):
        grown.append(pairs.pair_scores(context("ship it"), "", HASHES).confidence)
        _learn(pairs, "ship it")
    assert grown[:3] == pytest.approx([0.0, 0.1, 0.2])
    assert grown[10:] == pytest.approx([1.0, 1.0])


def test_a_pair_counts_once_per_session_however_sessions_alternate():
    pairs, one, other = LearnedPairs(), uuid4(), uuid4()
    for session in (one, other, one, other, one):
        _learn(pairs, "ship it", session=session)
    assert pairs.pair_scores(context("ship it"), "", HASHES).confidence == pytest.approx(0.2)
    _learn(pairs, "ship it", tool="rollback", session=one)
    assert pairs.pair_scores(context("ship it"), "", HASHES).confidence == pytest.approx(0.3)
    _learn(pairs, "ship it", signal=0.0, session=uuid4())
    assert pairs.pair_scores(context("ship it"), "", HASHES).confidence == pytest.approx(0.3)


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
    assert pairs.pair_scores(context("new number0"), "", HASHES).by_tool == pytest.approx({"deploy": 1.0})


def test_what_was_restored_answers_as_what_was_learned():
    pairs = LearnedPairs()
    kept = [_learn(pairs, f"ship number{number}") for number in range(30)]
    restored = LearnedPairs()
    restored.restore(kept)
    asked = context("ship number3 again")
    found, expected = (each.pair_scores(asked, "", HASHES) for each in (restored, pairs))
    assert found.by_tool == pytest.approx(expected.by_tool)
    assert found.confidence == pytest.approx(expected.confidence)
    again = restored.learn(context("ship number3"), "deploy", 1.0, scope="", at=1.0, description_hash="d1")
    assert (again.id, again.uses) == (kept[3].id, 2)


def test_votes_are_trusted_where_tools_recur_and_not_where_they_do_not():
    recurring, scattered = LearnedPairs(), LearnedPairs()
    for number in range(40):
        asked = context(f"ship parcel number{number}")
        recurring.learn(asked, "deploy", 1.0, scope="", at=0.0, description_hash="")
        scattered.learn(asked, f"tool{number}", 1.0, scope="", at=0.0, description_hash="")
    asked = context("ship parcel soon")
    assert recurring.pair_scores(asked, "", {}).trust > 0.5
    assert scattered.pair_scores(asked, "", {}).trust == 0.0


def test_lessons_of_a_description_that_changed_while_riglm_was_away_give_no_confidence():
    restored = LearnedPairs()
    restored.restore(_learn(LearnedPairs(), f"ship number{number}") for number in range(20))
    asked = context("ship number3")
    assert restored.pair_scores(asked, "", HASHES).confidence > 0.3
    assert restored.pair_scores(asked, "", {"deploy": "changed"}).confidence == 0.0


def test_without_the_key_neither_words_nor_contexts_can_be_guessed():
    mine, other, plain = (_learn(LearnedPairs(key), "zeppelin") for key in (b"m" * 32, b"o" * 32, b""))
    assert len({mine.terms, other.terms, plain.terms}) == 3
    assert len({mine.id, other.id, plain.id}) == 3
    assert (mine.terms, mine.id) == ((again := _learn(LearnedPairs(b"m" * 32), "zeppelin")).terms, again.id)
