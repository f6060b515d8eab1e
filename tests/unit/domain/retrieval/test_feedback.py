"""Negative feedback, in any sequence of feedback and calls."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riglm.domain.learning import LearnedPair
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.domain.retrieval.retriever import Retriever
from riglm.domain.tool import ToolProfile
from tests.unit.domain.retrieval.samples import MODEL, context, vectors

TOOLS = tuple(
    ToolProfile(name=name, description=text)
    for name, text in {
        "deploy": "Ship a release to production",
        "rollback": "Undo the last release",
        "notify": "Send a message to the team",
        "list_mail": "List messages",
    }.items()
)
HASHES = {tool.name: tool.fingerprint for tool in TOOLS}
NAMES = tuple(HASHES)
CONTEXTS = [
    context(text)
    for text in ("ship the release", "ship the release now", "send the team a message", "undo it", "zebra")
]

learned = st.tuples(st.sampled_from(CONTEXTS), st.sampled_from(NAMES), st.sampled_from([0.0, 0.5, 1.0, 1.5]))
rejected = st.tuples(st.sampled_from(CONTEXTS), st.just("deploy"), st.just(0.0))


def learn(pairs: LearnedPairs, at: float, what) -> LearnedPair | None:
    asked, tool, signal = what
    return pairs.learn(asked, tool, signal, scope="", at=at, description_hash=HASHES[tool])


def after(events) -> LearnedPairs:
    pairs = LearnedPairs()
    for at, what in enumerate(events):
        learn(pairs, float(at), what)
    return pairs


VECTORS = vectors(TOOLS)


def retriever(pairs: LearnedPairs) -> Retriever:
    return Retriever(TOOLS, pairs=pairs).with_vectors(MODEL, VECTORS)


def ranks(scores) -> list[int]:
    """For each tool, how many have a higher score."""
    return [int((scores > score).sum()) for score in scores]


@given(st.lists(learned, max_size=25), st.lists(st.tuples(st.integers(0, 25), rejected), min_size=1, max_size=10))
@settings(max_examples=25, deadline=None)
def test_negative_feedback_raises_neither_a_tool_nor_a_context(events, feedback):
    with_feedback = list(events)
    for place, what in feedback:
        with_feedback.insert(min(place, len(with_feedback)), what)
    before, later = after(events), after(with_feedback)
    for asked in CONTEXTS:
        pair_scores, fewer = (each.pair_scores(asked, "", HASHES) for each in (before, later))
        assert fewer.confidence <= pair_scores.confidence
        assert fewer.trust == pytest.approx(pair_scores.trust)
        assert fewer.by_tool.get("deploy", 0.0) <= pair_scores.by_tool.get("deploy", 0.0) + 1e-12
        assert {**fewer.by_tool, "deploy": 0.0} == pytest.approx({**pair_scores.by_tool, "deploy": 0.0})
        first, second = (retriever(each).relevance(asked, NAMES).combined for each in (before, later))
        assert ranks(second)[0] >= ranks(first)[0]
        assert np.all(second <= first + 1e-12)


def test_negative_feedback_lowers_what_use_taught_and_leaves_the_number_of_uses():
    pairs = LearnedPairs()
    learn(pairs, 1.0, (CONTEXTS[0], "deploy", 1.0))
    pair = learn(pairs, 9.0, (CONTEXTS[0], "deploy", 0.0))
    assert (pair.confidence, pair.uses) == (pytest.approx(0.8), 1)
    assert pair.updated_at == pytest.approx(1.0), "it is pruned no later than without the feedback"
    elsewhere = LearnedPairs()
    learn(elsewhere, 1.0, (CONTEXTS[0], "deploy", 1.0))
    assert elsewhere.catch_up([pair]) == 1, "and other processes take it"


def test_negative_feedback_on_what_was_never_used_teaches_nothing():
    pairs = LearnedPairs()
    assert learn(pairs, 1.0, (CONTEXTS[0], "deploy", 0.0)) is None
    assert len(pairs) == 0
