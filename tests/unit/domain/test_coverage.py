"""Lists are as long as the asked share of calls takes."""

import json

import numpy as np
import pytest

from riglm.domain.coverage import CoverageCalibrator

TOOLS = 60


def a_world(seed: int):
    """Scores and what is called then: now an easy choice among few tools, now a hard one among many."""
    generator = np.random.default_rng(seed)
    while True:
        sharpness = generator.choice([0.5, 3.0])
        scores = sharpness * generator.normal(size=TOOLS)
        probabilities = np.exp(scores) / np.exp(scores).sum()
        yield scores, int(generator.choice(TOOLS, p=probabilities))


def walked(calibrator: CoverageCalibrator, calls: int, *, scale: float = 1.0, seed: int = 1) -> tuple[float, float]:
    """The realised share of calls in the list, and the mean length of the list, once it is calibrated."""
    held, lengths = [], []
    for _, (scores, target) in zip(range(calls), a_world(seed), strict=False):
        size = calibrator.size(scale * scores)
        if calibrator.calibrated:
            held.append(int((scores > scores[target]).sum()) < size)
            lengths.append(size)
        calibrator.observe(scale * scores, target)
    return float(np.mean(held)), float(np.mean(lengths))


@pytest.mark.parametrize("goal", [0.8, 0.9, 0.95])
def test_the_list_holds_the_asked_share_of_calls(goal: float):
    held, _ = walked(CoverageCalibrator(goal, 1, TOOLS), 1500)
    assert held == pytest.approx(goal, abs=0.02)


@pytest.mark.parametrize("scale", [0.2, 5.0])
def test_scores_that_are_too_timid_or_too_bold_do_not_change_the_share(scale: float):
    held, _ = walked(CoverageCalibrator(0.9, 1, TOOLS), 1500, scale=scale)
    assert held == pytest.approx(0.9, abs=0.02)


def test_lists_are_shorter_than_one_fixed_length_for_the_same_share():
    held, mean = walked(CoverageCalibrator(0.9, 1, TOOLS), 1500)
    ranks = [int((scores > scores[target]).sum()) for _, (scores, target) in zip(range(1500), a_world(1), strict=False)]
    fixed = int(np.quantile(ranks, held)) + 1
    assert mean < fixed


def test_a_sure_prediction_makes_a_shorter_list_than_a_vague_one():
    calibrator = CoverageCalibrator(0.9, 1, TOOLS)
    walked(calibrator, 300)
    scores = np.random.default_rng(2).normal(size=TOOLS)
    assert calibrator.size(6.0 * scores) < calibrator.size(0.1 * scores)


def test_the_share_recovers_after_the_calls_have_changed():
    calibrator = CoverageCalibrator(0.9, 1, TOOLS)
    easy = np.zeros(TOOLS)
    easy[3] = 20.0
    for _ in range(200):
        calibrator.observe(easy, 3)
    walked(calibrator, 1000)
    held, _ = walked(calibrator, 500, seed=3)
    assert held == pytest.approx(0.9, abs=0.04)


def test_before_anything_is_known_the_list_is_as_long_as_it_may_be():
    calibrator = CoverageCalibrator(0.9, 2, 20)
    assert not calibrator.calibrated
    assert calibrator.size(np.zeros(TOOLS)) == 20
    assert calibrator.size(np.zeros(7)) == 7


def test_the_bounds_hold_and_give_way_to_a_small_catalogue():
    calibrator = CoverageCalibrator(0.9, 5, 8)
    sure = np.zeros(TOOLS)
    sure[0] = 30.0
    for _ in range(50):
        calibrator.observe(sure, 0)
    assert calibrator.size(sure) == 5
    assert calibrator.size(sure[:3]) == 3
    assert calibrator.size(sure[:0]) == 0
    for _ in range(50):
        calibrator.observe(sure, 40)
    assert calibrator.size(sure) == 8


def test_what_was_learned_survives_json():
    calibrator, restored = CoverageCalibrator(0.9, 1, TOOLS), CoverageCalibrator(0.9, 1, TOOLS)
    walked(calibrator, 120)
    restored.restore(json.loads(json.dumps(calibrator.state())))
    assert restored.state() == calibrator.state()
    for _, (scores, _) in zip(range(30), a_world(4), strict=False):
        assert restored.size(scores) == calibrator.size(scores)


@pytest.mark.parametrize(
    "broken",
    [{}, {"aim": "high", "latest": []}, {"aim": 0.9}, {"aim": 0.9, "latest": 3}, {"aim": 0.9, "latest": ["x"]}],
)
def test_a_state_that_is_none_is_left_alone(broken: dict[str, object]):
    calibrator = CoverageCalibrator(0.9, 1, TOOLS)
    walked(calibrator, 60)
    before = calibrator.state()
    calibrator.restore(broken)
    assert calibrator.state() == before


def test_the_state_stays_small():
    calibrator = CoverageCalibrator(0.9, 1, TOOLS)
    scores = np.arange(10.0)
    for call in range(5000):
        calibrator.observe(scores, call % 10)
    assert len(json.dumps(calibrator.state())) < 60_000
