"""The plug-in keeps riglm's contract, and does what it says."""

import pytest
from riglm_recency.predictor import RecencyPredictor

from riglm.testing.predictor import PredictorContract, a_prediction_input


class TestRecencyPredictor(PredictorContract):
    """Every test of the contract is run with this predictor."""

    @pytest.fixture
    def predictor(self) -> RecencyPredictor:
        return RecencyPredictor()


def test_a_tool_that_was_used_one_half_life_ago_scores_a_half() -> None:
    predictor = RecencyPredictor(half_life=60.0)
    predictor.learn(a_prediction_input(time=1_000.0), "git__log")
    now = a_prediction_input(time=1_060.0)
    scores = dict(zip(now.candidates, predictor.predict(now).scores, strict=True))
    assert scores["git__log"] == pytest.approx(0.5)
    assert scores["git__diff"] == 0.0
