"""Scores of strategies become probabilities that outcomes follow."""

from itertools import pairwise

import numpy as np
import pytest

from riglm.adapters.prediction.hybrid import HybridPredictor
from riglm.application.prediction.calibration import CalibratedPredictor, LogisticRegression
from riglm.domain.prediction import Prediction, PredictionInput
from riglm.ports.predictor import PredictorPort

TOOLS = tuple(f"tool{number:02}" for number in range(40))
SHARES = np.concatenate([[0.9, 0.75, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.12], np.full(30, 0.03)])
LOG_ODDS = np.log(SHARES / (1 - SHARES))


def asked(*calls, candidates=TOOLS):
    return PredictionInput(candidates=candidates, calls=calls)


class Scripted(PredictorPort):
    """Answers what a test says, and learns nothing."""

    def __init__(self, answer):
        self._answer = answer

    def learn(self, prediction_input, tool, weight=1.0):
        pass

    def predict(self, prediction_input, *, explain=False):
        return self._answer if isinstance(self._answer, Prediction) else self._answer(prediction_input)


def scores(values):
    return Prediction(scores=np.array(values, np.float64))


def parts(**log_odds):
    return Prediction(scores=np.sum(list(log_odds.values()), axis=0), log_odds=log_odds)


def learn_sessions(predictor, *sessions):
    """Learn sessions that call these tools, one after the other."""
    for calls in sessions:
        for place, tool in enumerate(calls):
            predictor.learn(asked(*calls[:place]), tool)
        predictor.end_session()


def a_session(chance):
    """Return the tools that a session needs, in any order."""
    return tuple(chance.permutation(np.array(TOOLS)[chance.random(len(TOOLS)) < SHARES]).tolist())


@pytest.mark.parametrize("scale", [0.1, 1.0, 12.0])
def test_logistic_regression_finds_the_batch_s_most_likely_weights(scale):
    """There the gradient of the likelihood equals that of the normal distribution that the weights begin with."""
    chance = np.random.default_rng(4)
    features = np.stack([np.ones(300), np.clip(scale * chance.normal(size=300), -12.0, 12.0)], axis=1)
    outcomes = (chance.random(300) < 0.1).astype(float)
    model = LogisticRegression(("constant", "told"))
    precision, before = np.diag([1.0, 10.0]), model.weights
    model.learn(features, outcomes)
    errors = outcomes - model.probabilities(features)
    pull = precision @ (model.weights - before)
    assert (features.T @ errors).tolist() == pytest.approx(pull.tolist(), abs=0.5)


def test_logistic_regression_survives_rows_that_it_was_sure_about_and_that_came_out_otherwise():
    model = LogisticRegression(("constant", "likely", "told"))
    features = np.stack([np.ones(50), np.full(50, 15.0), np.full(50, 12.0)], axis=1)
    for _ in range(20):
        model.learn(features, np.zeros(50))
    assert np.isfinite(model.weights).all()
    assert model.probabilities(features).max() < 0.1


SCALES = {
    "large": lambda: scores(5_000.0 + 70.0 * LOG_ODDS),
    "small": lambda: scores(-2.0 + 1e-4 * LOG_ODDS),
    "too sure": lambda: parts(use=2.5 * LOG_ODDS),
    "too hopeful": lambda: parts(use=LOG_ODDS + 2.0),
    "with noise": lambda: parts(use=LOG_ODDS, noise=np.random.default_rng(8).normal(0.0, 2.0, len(TOOLS))),
}


@pytest.mark.parametrize(("scale", "calls"), [*((scale, 0) for scale in SCALES), ("with noise", 1)])
def test_probabilities_follow_outcomes_whatever_the_scale_of_scores(scale, calls):
    chance = np.random.default_rng(11)
    predictor = CalibratedPredictor(Scripted(SCALES[scale]()))
    expected, happened = [], []
    for number in range(500):
        session = a_session(chance)
        if len(session) <= calls:
            continue
        if number >= 150:
            new = np.array([tool not in session[:calls] for tool in TOOLS])
            expected.append(predictor.predict(asked(*session[:calls])).scores[new])
            happened.append(np.isin(TOOLS, session[calls:])[new])
        learn_sessions(predictor, session)
    expected, happened = np.concatenate(expected), np.concatenate(happened)
    edges = [0.0, 0.08, 0.2, 0.45, 1.0]
    for low, high in pairwise(edges):
        rows = (expected >= low) & (expected < high)
        assert rows.sum() > 200
        assert happened[rows].mean() == pytest.approx(expected[rows].mean(), rel=0.25)


def test_nothing_is_learned_from_a_session_before_it_has_ended():
    predictor = CalibratedPredictor(Scripted(parts(use=np.zeros(len(TOOLS)))))
    before = predictor.predict(asked()).scores.tolist()
    for place, tool in enumerate(TOOLS[:3]):
        predictor.learn(asked(*TOOLS[:place]), tool)
        assert predictor.predict(asked()).scores.tolist() == before
    predictor.end_session()
    assert predictor.predict(asked()).scores.max() < before[0]


def test_contributions_add_up_to_the_log_odds():
    chance = np.random.default_rng(15)
    predictor = CalibratedPredictor(HybridPredictor())
    learn_sessions(predictor, *(a_session(chance) for _ in range(30)))
    for calls in ((), TOOLS[:2]):
        found = predictor.predict(asked(*calls), explain=True)
        total = np.sum(list(found.contributions.values()), axis=0)
        assert (1 / (1 + np.exp(-total))).tolist() == pytest.approx(found.scores.tolist())
        assert predictor.predict(asked(*calls)).contributions == {}
