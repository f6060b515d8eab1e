"""Figures are worked out by hand here."""

import numpy as np
import pytest

from riglm.application.evaluation.history import RankTally, fixed_size, hits, percentile, rank


def test_hits_are_shares_of_ranks_below_the_cut_in_percent():
    assert hits("h", [0, 1, 4, 20], (1, 5, 15)) == {"h@1": 25.0, "h@5": 75.0, "h@15": 75.0}


def test_no_calls_have_no_share():
    assert hits("new", [], (1, 5)) == {"new@1": None, "new@5": None}
    assert percentile([], 0.5) is None


def test_of_equal_scores_the_first_in_the_catalogue_comes_first():
    scores = np.array([1.0, 2.0, 2.0, 2.0])
    assert [rank(scores, target) for target in range(4)] == [3, 0, 1, 2]


def test_new_counts_fresh_calls_only():
    tally = RankTally(ranks=[0, 9, 2], fresh=[False, True, True], taken_ms=[1.0, 2.0, 3.0])
    figures = tally.figures((5,))
    assert figures == {"h@5": 66.67, "new@5": 50.0, "calls": 3, "new_calls": 2, "p50_ms": 2.0, "p99_ms": 2.98}


def test_the_fixed_length_holds_the_same_share():
    assert fixed_size([0, 0, 1, 5], 0.75) == 2
    assert fixed_size([0, 0, 1, 5], 1.0) == 6
    assert fixed_size([0, 0, 2, 2], 0.75) == 2.5


def test_coverage_compares_calibrated_lists_with_a_fixed_one():
    tally = RankTally(sizes=[1, 3, 4], listed_ranks=[0, 3, 3])
    figures = tally.coverage(0.9, 10)
    assert figures["goal"] == 90.0
    assert figures["coverage"] == pytest.approx(66.67)
    assert figures["mean_list"] == pytest.approx(2.67)
    assert figures["fixed_list"] == pytest.approx(3.5)
    assert figures["reduction"] == pytest.approx(73.33)


def test_lists_that_were_never_calibrated_have_no_figures():
    assert RankTally().coverage(0.9, 10)["coverage"] is None
