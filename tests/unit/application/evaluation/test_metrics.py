"""Figures are worked out by hand here."""

import numpy as np

from riglm.application.evaluation.history import RankTally, hits, percentile, rank


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
