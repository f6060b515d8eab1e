"""What a context needs, beside what is called next."""

import numpy as np
import pytest

from riglm.application.prediction.whole_context import for_context
from riglm.domain.prediction import Prediction, Relevance

SCORES = np.array([-1.0, -2.0, -3.0, -4.0])
FIT = np.array([0.0, 0.1, 0.2, 0.9])


def ordered(confidence: float, fit: np.ndarray = FIT, scores: np.ndarray = SCORES) -> list[int]:
    relevance = Relevance(described=fit, learned=fit, combined=fit, confidence=confidence)
    return np.argsort(-for_context(Prediction(scores=scores), relevance).scores, kind="stable").tolist()


def test_an_unknown_context_changes_nothing():
    assert ordered(0.0) == [0, 1, 2, 3]


def test_a_sure_context_ranks_by_what_was_of_use_in_it():
    assert ordered(1.0) == [3, 2, 1, 0]


def test_a_middling_one_is_weighed():
    assert ordered(0.5)[0] in (0, 3)
    assert ordered(0.6).index(3) < ordered(0.2).index(3)


@pytest.mark.parametrize("confidence", [0.0, 0.4, 1.0])
def test_the_scores_as_such_stay_as_they_were(confidence):
    relevance = Relevance(described=FIT, learned=FIT, combined=FIT, confidence=confidence)
    given = for_context(Prediction(scores=SCORES), relevance)
    assert sorted(given.scores.tolist()) == sorted(SCORES.tolist())


def test_where_all_fit_alike_the_prediction_stands():
    assert ordered(1.0, fit=np.zeros(4)) == [0, 1, 2, 3]
