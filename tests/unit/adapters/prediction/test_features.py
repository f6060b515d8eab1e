"""The features that the signals of one prediction share."""

import pytest

from riglm.adapters.prediction.features import Features
from riglm.testing.predictor import a_prediction_input


@pytest.mark.parametrize("others", [0, 1, 9], ids="{} others".format)
def test_amounts_are_laid_out_over_the_candidates_however_many_others_there_are(others: int) -> None:
    amounts = {"c": 3.0, "a": 1.0} | {f"gone{number}": 7.0 for number in range(others)}
    assert Features(a_prediction_input(candidates=("a", "b", "c"))).spread(amounts).tolist() == [1.0, 0.0, 3.0]
