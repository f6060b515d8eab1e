"""The conditional logit that is learned online."""

import numpy as np
import pytest

from riglm.adapters.prediction.hybrid import OnlineLogit, log_softmax

TRUE = np.array([1.0, -0.5, 0.0])


def _choices(count: int, seed: int = 1):
    generator = np.random.default_rng(seed)
    for _ in range(count):
        features = generator.normal(size=(3, 8))
        yield features, int(generator.choice(8, p=np.exp(log_softmax(TRUE @ features))))


def _learned(count: int, *, precision: float = 5.0, forgetting: float = 0.0, start=(0.0, 0.0, 0.0)) -> OnlineLogit:
    logit = OnlineLogit(start, precision=precision, forgetting=forgetting)
    for features, chosen in _choices(count):
        logit.learn(features, chosen, 1.0)
    return logit


def test_one_pass_is_as_good_as_the_weights_of_all_choices_together():
    """Newton's method over all choices gives the mode that the online steps approximate."""
    weights, choices = np.zeros(3), list(_choices(300))
    for _ in range(10):
        gradient, precision = 5.0 * weights, 5.0 * np.eye(3)
        for features, chosen in choices:
            p = np.exp(log_softmax(weights @ features))
            mean = features @ p
            gradient += mean - features[:, chosen]
            precision += (features * p) @ features.T - np.outer(mean, mean)
        weights -= np.linalg.solve(precision, gradient)
    assert _learned(300).weights == pytest.approx(weights, abs=0.05)


def test_a_feature_that_is_always_zero_stays_at_its_default():
    logit = OnlineLogit((0.3, 0.7), precision=5.0, forgetting=1e-2)
    for features, chosen in _choices(100):
        features[1] = 0.0
        logit.learn(features[:2], chosen, 1.0)
    assert logit.weights[1] == pytest.approx(0.7)


@pytest.mark.parametrize("values", [[], [1e6, 0.0], [-1e9]], ids=str)
def test_log_softmax_is_finite(values):
    found = log_softmax(np.array(values))
    assert np.isfinite(found).all()
    assert not values or np.exp(found).sum() == pytest.approx(1.0)
