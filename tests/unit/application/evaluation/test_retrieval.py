import numpy as np
import pytest

from riglm.application.evaluation.retrieval import (
    BASELINES,
    EmbedderChangedError,
    PredictedRanking,
    baseline,
    evaluate_retrieval,
    figures,
    measured,
    prepare,
    text_count,
)
from riglm.domain.prediction import Context, Prediction
from riglm.domain.retrieval.retriever import Retriever
from tests.unit.application.evaluation.sets import prepared
from tests.unit.domain.retrieval.samples import MODEL, SPIKE, vector

REQUESTS = {"sum of two numbers": "get-sum", "search online": "tavily_search", "open a url": "browser_navigate"}


class ByRelevance:
    """A predictor that passes relevance on."""

    def learn(self, prediction_input, tool, weight=1.0):
        raise AssertionError("nothing is learned in retrieval")

    def predict(self, prediction_input, *, explain=False):
        return Prediction(scores=prediction_input.relevance.combined)


class Words:
    """An embedder of words; its model can change on the way."""

    def __init__(self, models=(MODEL,)):
        self._models = list(models)
        self.model = models[0]

    def embed_public(self, texts):
        self.model = self._models.pop(0) if len(self._models) > 1 else self._models[0]
        return np.stack([vector(text) for text in texts])


def test_figures_are_those_of_the_protocol():
    ranks = [np.array([0]), np.array([3, 12])]
    found = figures(ranks, (5, 15))
    assert (found["r@5"], found["r@15"]) == (75.0, 100.0)
    assert (found["c@5"], found["c@15"]) == (50.0, 100.0)
    assert found["mrr"] == pytest.approx(62.5)
    ideal = 1 + 1 / np.log2(3)
    assert found["n@10"] == pytest.approx(50 + 50 / np.log2(5) / ideal, abs=0.01)


def test_the_best_of_equally_right_tools_counts():
    found = measured(lambda _: np.array([0.1, 0.9, 0.5]), [Context(text="x")], [[[0, 1]]], (1,))
    assert (found["n"], found["r@1"]) == (1, 100.0)


def test_equal_scores_keep_the_order_of_the_catalogue():
    found = measured(lambda _: np.zeros(3), [Context(text="x")], [[[1]]], (1, 2))
    assert (found["r@1"], found["r@2"]) == (0.0, 100.0)


@pytest.mark.parametrize("kind", BASELINES)
def test_each_baseline_finds_tools_that_share_words(kind):
    data = prepared(SPIKE, REQUESTS)
    assert evaluate_retrieval(data, baseline(kind, data), (2,))["r@2"] > 60


def test_a_predictor_ranks_by_relevance():
    data = prepared(SPIKE, REQUESTS)
    seen = []
    found = evaluate_retrieval(data, PredictedRanking(ByRelevance(), data.retriever(), data), (1,), seen.append)
    assert found["r@1"] == 100.0
    assert len(seen) == found["n"] == 3


def test_a_set_is_embedded_once_for_each_text():
    data = prepared(SPIKE, REQUESTS).dataset
    counted = []
    embedded = prepare(data, Words(), counted.append)
    assert sum(counted) == text_count(data) == len(SPIKE) + len(REQUESTS)
    assert embedded.contexts[0].vector.shape == (1, 64)
    assert isinstance(embedded.retriever(), Retriever)


def test_a_model_that_takes_over_on_the_way_ends_the_measurement():
    with pytest.raises(EmbedderChangedError, match="another took over"):
        prepare(prepared(SPIKE, REQUESTS).dataset, Words((MODEL, "another")))
