import pytest

from riglm.application.evaluation.retrieval import AbstentionMetrics, EmbeddedDataset, evaluate_abstention
from riglm.domain.prediction import Context
from tests.unit.application.evaluation.sets import prepared
from tests.unit.domain.retrieval.samples import SPIKE


def test_precision_is_of_equally_many_requests_of_both_kinds():
    found = AbstentionMetrics(answerable=200, unanswerable=50, wrongly=10, rightly=20)
    assert (found.false_abstentions, found.recall) == (0.05, 0.4)
    assert found.precision == pytest.approx(0.4 / 0.45)


def test_never_abstaining_is_never_wrong():
    found = AbstentionMetrics(answerable=0, unanswerable=0, wrongly=0, rightly=0)
    assert (found.precision, found.recall, found.false_abstentions) == (1.0, 0.0, 0.0)


def test_strange_requests_are_told_from_those_of_the_catalogue():
    own = prepared(SPIKE, {"sum of two numbers": "get-sum", "search the web online": "tavily_search"})
    by_words = EmbeddedDataset(dataset=own.dataset, model="", vectors={}, contexts=_without_vectors(own.contexts))
    strange = prepared(SPIKE, {"violin zeppelin": "echo", "purple giraffe": "echo", "never counted": "echo"})
    other = EmbeddedDataset(dataset=strange.dataset, model="", vectors={}, contexts=_without_vectors(strange.contexts))
    found = evaluate_abstention(by_words, [other], most=2)
    assert found == AbstentionMetrics(answerable=2, unanswerable=2, wrongly=0, rightly=2)


def _without_vectors(contexts):
    return tuple(Context(text=context.text) for context in contexts)
