"""From scores to the tools of a list, and what a list costs."""

import numpy as np
import pytest

from riglm.domain.ranking import Choice, ranked, selected
from riglm.domain.tokens import estimated_tokens, is_worth_changing

NAMES = ("a", "b", "c", "d")


def test_the_best_come_first():
    assert ranked(NAMES, np.array([0.1, 0.9, 0.5, 0.2]), 3) == ["b", "c", "d"]


def test_among_equals_the_order_of_the_names_holds():
    assert ranked(NAMES, [1.0, 1.0, 2.0, 1.0], 4) == ["c", "a", "b", "d"]


def test_what_is_no_number_comes_last():
    assert ranked(NAMES, [float("nan"), 0.0, float("-inf"), 1.0], 4) == ["d", "b", "a", "c"]


def test_a_selection_has_the_size_asked_for():
    assert selected(NAMES, [4.0, 3.0, 2.0, 1.0], (), 2) == {"a", "b"}


def test_kept_tools_count_towards_the_size():
    assert selected(NAMES, [4.0, 3.0, 2.0, 1.0], ("d",), 2) == {"a", "d"}


def test_kept_tools_stay_beyond_the_size():
    assert selected(NAMES, [4.0, 3.0, 2.0, 1.0], ("c", "d"), 1) == {"c", "d"}


def test_a_kept_tool_that_is_also_best_takes_one_place():
    assert selected(NAMES, [4.0, 3.0, 2.0, 1.0], ("a",), 2) == {"a", "b"}


def test_no_candidates_make_an_empty_selection():
    assert selected((), np.array([]), (), 5) == frozenset()


def test_a_choice_of_everything_names_all_candidates():
    assert Choice(candidates=NAMES).chosen == frozenset(NAMES)
    assert Choice(candidates=NAMES, tools=frozenset("a")).chosen == {"a"}


@pytest.mark.parametrize(("size", "tokens"), [(0, 0), (1, 1), (4, 1), (5, 2), (4000, 1000)])
def test_tokens_are_a_quarter_of_the_bytes_rounded_up(size, tokens):
    assert estimated_tokens(size) == tokens


def test_a_much_shorter_list_is_worth_its_change():
    assert is_worth_changing(10_000, 3_000, 50)


def test_a_slightly_shorter_list_is_not():
    assert not is_worth_changing(10_000, 9_000, 50)


def test_no_list_is_worth_changing_when_no_request_follows():
    assert not is_worth_changing(10_000, 100, 0)


def test_a_longer_list_saves_nothing():
    assert not is_worth_changing(1_000, 2_000, 1_000)
