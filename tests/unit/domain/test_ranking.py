"""Ranking by score."""

import numpy as np

from riglm.domain.prediction import ranked

NAMES = ("a", "b", "c", "d")


def test_the_best_come_first():
    assert ranked(NAMES, np.array([0.1, 0.9, 0.5, 0.2]), 3) == ["b", "c", "d"]


def test_among_equals_the_order_of_the_names_holds():
    assert ranked(NAMES, [1.0, 1.0, 2.0, 1.0], 4) == ["c", "a", "b", "d"]


def test_what_is_no_number_comes_last():
    assert ranked(NAMES, [float("nan"), 0.0, float("-inf"), 1.0], 4) == ["d", "b", "a", "c"]
