"""Lists are as long as the asked share of calls takes."""

import pickle

import numpy as np
import pytest

from riglm.domain.coverage import CoverageCalibrator
from riglm.domain.prediction import Prediction

TOOLS = 60


def probable(scores: np.ndarray, lift: np.ndarray | float = 0.0) -> Prediction:
    """A prediction that knows its probabilities; `lift` is added to the scores alone."""
    return Prediction(scores=scores + lift, log_probabilities=scores - np.logaddexp.reduce(scores))


def ordered(scores: np.ndarray) -> Prediction:
    """A prediction that only knows an order."""
    return Prediction(scores=scores)


KINDS = pytest.mark.parametrize("predicted", [probable, ordered])


def a_world(seed: int):
    """Scores and what is called then: now an easy choice among few tools, now a hard one among many."""
    generator = np.random.default_rng(seed)
    while True:
        sharpness = generator.choice([0.5, 3.0])
        scores = sharpness * generator.normal(size=TOOLS)
        probabilities = np.exp(scores) / np.exp(scores).sum()
        yield scores, int(generator.choice(TOOLS, p=probabilities))


def walked(
    calibrator: CoverageCalibrator, calls: int, predicted=probable, *, scale: float = 1.0, seed: int = 1
) -> tuple[float, float]:
    """The realised share of calls in the list, and the mean length of the list, once it is calibrated."""
    held, lengths = [], []
    for _, (scores, target) in zip(range(calls), a_world(seed), strict=False):
        prediction = predicted(scale * scores)
        size = calibrator.size(prediction)
        if calibrator.calibrated:
            held.append(int((prediction.scores > prediction.scores[target]).sum()) < size)
            lengths.append(size)
        calibrator.observe(prediction, target)
    return float(np.mean(held)), float(np.mean(lengths))


@KINDS
@pytest.mark.parametrize("goal", [0.8, 0.9, 0.95])
def test_the_list_holds_the_asked_share_of_calls(goal: float, predicted):
    held, _ = walked(CoverageCalibrator(goal, 1, TOOLS), 1500, predicted)
    assert held == pytest.approx(goal, abs=0.02)


@KINDS
@pytest.mark.parametrize("scale", [0.2, 5.0])
def test_probabilities_that_are_too_timid_or_too_bold_do_not_change_the_share(scale: float, predicted):
    """Not by much while little is known, and not in the long run."""
    calibrator = CoverageCalibrator(0.9, 1, TOOLS)
    early, _ = walked(calibrator, 800, predicted, scale=scale)
    late, _ = walked(calibrator, 1500, predicted, scale=scale, seed=2)
    assert early == pytest.approx(0.9, abs=0.04)
    assert late == pytest.approx(0.9, abs=0.02)


@KINDS
def test_lists_are_shorter_than_one_fixed_length_for_the_same_share(predicted):
    held, mean = walked(CoverageCalibrator(0.9, 1, TOOLS), 1500, predicted)
    ranks = [int((scores > scores[target]).sum()) for _, (scores, target) in zip(range(1500), a_world(1), strict=False)]
    fixed = int(np.quantile(ranks, held)) + 1
    assert mean < fixed


@KINDS
def test_a_sure_prediction_makes_a_shorter_list_than_a_vague_one(predicted):
    calibrator = CoverageCalibrator(0.9, 1, TOOLS)
    walked(calibrator, 300, predicted)
    scores = np.random.default_rng(2).normal(size=TOOLS)
    assert calibrator.size(predicted(6.0 * scores)) < calibrator.size(predicted(0.1 * scores))


def test_a_tool_that_is_ranked_above_its_probability_does_not_lengthen_the_list_by_it():
    """Half of the tools are lifted in the order: probabilities still say where the list may end."""
    calibrator, lift = CoverageCalibrator(0.9, 1, TOOLS), np.where(np.arange(TOOLS) % 2, 0.8, 0.0)
    held, mean = walked(calibrator, 1500, lambda scores: probable(scores, lift))
    by_scores, longer = walked(CoverageCalibrator(0.9, 1, TOOLS), 1500, lambda scores: ordered(scores + lift))
    assert held == pytest.approx(0.9, abs=0.02)
    assert by_scores == pytest.approx(0.9, abs=0.02)
    assert mean < longer


def test_what_predictions_expect_of_themselves_steadies_lists_that_have_little_to_go_by():
    def spread(predicted) -> float:
        return float(np.std([walked(CoverageCalibrator(0.9, 1, TOOLS), 60, predicted, seed=s)[1] for s in range(20)]))

    assert spread(probable) < spread(lambda scores: ordered(probable(scores).log_probabilities))


def test_the_share_recovers_after_the_calls_have_changed():
    calibrator = CoverageCalibrator(0.9, 1, TOOLS)
    easy = np.zeros(TOOLS)
    easy[3] = 20.0
    for _ in range(200):
        calibrator.observe(probable(easy), 3)
    walked(calibrator, 1000)
    held, _ = walked(calibrator, 500, seed=3)
    assert held == pytest.approx(0.9, abs=0.04)


def test_before_anything_is_known_the_list_is_as_long_as_it_may_be():
    calibrator = CoverageCalibrator(0.9, 2, 20)
    assert not calibrator.calibrated
    assert calibrator.size(probable(np.zeros(TOOLS))) == 20
    assert calibrator.size(probable(np.zeros(7))) == 7


def test_the_bounds_hold_and_give_way_to_a_small_catalogue():
    calibrator = CoverageCalibrator(0.9, 5, 8)
    sure = np.zeros(TOOLS)
    sure[0] = 30.0
    for _ in range(50):
        calibrator.observe(probable(sure), 0)
    assert calibrator.size(probable(sure)) == 5
    assert calibrator.size(probable(sure[:3])) == 3
    assert calibrator.size(probable(sure[:0])) == 0
    for _ in range(50):
        calibrator.observe(probable(sure), 40)
    assert calibrator.size(probable(sure)) == 8


def test_what_is_kept_does_not_grow_with_the_calls():
    calibrator = CoverageCalibrator(0.9, 1, TOOLS)
    walked(calibrator, 30)
    before = len(pickle.dumps(calibrator))
    walked(calibrator, 3000)
    assert len(pickle.dumps(calibrator)) <= before + 100


def test_another_goal_and_other_bounds_count_at_once_and_the_record_stays():
    calibrator = CoverageCalibrator(0.95, 1, TOOLS)
    walked(calibrator, 300)
    prediction = probable(next(a_world(2))[0])
    before = calibrator.size(prediction)
    calibrator.aim(0.5, 1, TOOLS)
    assert calibrator.calibrated
    assert calibrator.size(prediction) < before
    calibrator.aim(0.95, 1, 2)
    assert calibrator.size(prediction) == 2
