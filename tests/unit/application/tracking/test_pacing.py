"""How much of the store long work leaves to others."""

import pytest

from riglm.application.tracking.throttling import at_a_pace, rest_after


@pytest.mark.parametrize("seconds", [0.001, 0.02, 0.1])
def test_a_replay_leaves_a_quarter_of_its_time_to_others(seconds):
    assert rest_after(seconds) == pytest.approx(seconds / 4)


@pytest.mark.parametrize("seconds", [1.0, 5.0, 3600.0])
def test_a_batch_that_waited_for_the_store_is_followed_by_a_rest_in_which_others_get_in_and_no_more(seconds):
    assert 0.1 < rest_after(seconds) < 0.2


def test_steps_are_each_followed_by_a_pause():
    pauses = []
    assert list(at_a_pace(iter("abc"), pauses.append)) == ["a", "b", "c"]
    assert len(pauses) == 3
    assert all(pause > 0 for pause in pauses)


def test_what_is_left_is_given_up_when_the_pause_says_so():
    assert list(at_a_pace(iter("abc"), lambda _: True)) == ["a"]
