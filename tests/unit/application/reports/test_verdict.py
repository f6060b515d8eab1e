"""Whether filtering is worth switching on."""

import random
from dataclasses import replace

import pytest

from riglm.application.reports.report import Interval, VerdictInput, judge, ratio_by_session, share_by_session, wilson

GOOD = VerdictInput(is_on=False, others=0, sessions=40, calls=400, recorded=40, hidden=True, price=Interval(0.6, 0.9))


def test_what_holds_in_all_respects_is_worth_switching_on():
    found = judge(GOOD)
    assert found.code == "worth_it"
    assert "riglm enforce" in found.text
    assert all(reason.met for reason in found.reasons)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"sessions": 0, "calls": 0}, "empty"),
        ({"sessions": 19}, "too_early"),
        ({"calls": 99}, "too_early"),
        ({"hidden": False, "recorded": 0, "price": None}, "unsure"),
        ({"hidden": False, "recorded": 19}, "unsure"),
        ({"recorded": 19, "price": Interval(1.2, 1.3)}, "unsure"),
        ({"recorded": 2, "price": Interval(0.5, 0.5)}, "unsure"),
        ({"hidden": False}, "nothing_hidden"),
        ({"price": Interval(1.01, 1.3)}, "costs_more"),
        ({"price": Interval(1.0, 1.0)}, "costs_more"),
        ({"price": Interval(0.9, 1.1)}, "unsure"),
        ({"price": None}, "unsure"),
        ({"is_deferred": True}, "worth_it"),
        ({"is_deferred": True, "price": None}, "unsure"),
        ({"is_deferred": True, "hidden": False}, "nothing_hidden"),
    ],
)
def test_the_first_thing_that_does_not_hold_decides(changes, code):
    assert judge(replace(GOOD, **changes)).code == code


def test_nothing_in_this_time_is_told_from_nothing_at_all():
    nothing = judge(replace(GOOD, sessions=0, calls=0))
    elsewhere = judge(replace(GOOD, sessions=0, calls=0, others=7))
    assert "Nothing is recorded yet" in nothing.text
    assert "7 others" in elsewhere.text
    unlisted = judge(replace(GOOD, sessions=0, calls=0, unlisted=3))
    assert "3 sessions used a tool without one: a server had not sent its tools in time" in unlisted.text


BAD = {"hidden": False, "price": Interval(1.1, 1.3)}


@pytest.mark.parametrize("changes", [{"sessions": 1, "calls": 11, "recorded": 1}, {"sessions": 19}, {"calls": 99}])
def test_of_too_few_sessions_or_calls_nothing_that_is_measured_is_said_to_fail_or_to_hold(changes):
    for measured in (BAD, {}):
        marks = {reason.name: reason.met for reason in judge(replace(GOOD, **measured, **changes)).reasons}
        assert marks["sessions"] is False
        assert marks["price"] is None
    assert [reason.met for reason in judge(replace(GOOD, **BAD)).reasons] == [True, False, False]


# --- how sure a share or a ratio is ---


def test_of_nothing_nothing_is_known():
    assert wilson(0, 0) is None
    assert share_by_session([], []) is None
    assert ratio_by_session([], []) is None
    assert ratio_by_session([3.0], [4.0]) is None


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_a_share_lies_where_the_published_examples_of_wilson_s_interval_say(hits, of, low, high):
    """The examples of Newcombe (1998), which are without a correction of continuity."""
    found = wilson(hits, of)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)


def test_calls_that_are_alike_within_sessions_say_less_than_as_many_that_are_not():
    alike = share_by_session([10] * 8 + [0] * 2, [10] * 10)
    mixed = share_by_session([8] * 10, [10] * 10)
    assert alike.high - alike.low > 1.5 * (mixed.high - mixed.low)
    assert (mixed.low, mixed.high) == (wilson(80, 100).low, wilson(80, 100).high)


def test_sessions_without_a_miss_are_no_proof_that_there_is_none():
    found = share_by_session([3] * 5, [3] * 5)
    assert found.low == wilson(15, 15).low < 0.8
    assert found.high == 1.0


@pytest.mark.parametrize("sessions", [10, 40])
def test_the_interval_of_a_ratio_holds_the_true_one_about_as_often_as_it_says(sessions):
    chance, held = random.Random(0), 0
    for _ in range(200):
        wholes = [chance.uniform(50.0, 150.0) for _ in range(sessions)]
        found = ratio_by_session([0.8 * whole + chance.gauss(0.0, 20.0) for whole in wholes], wholes)
        held += found.low <= 0.8 <= found.high
    assert 0.91 <= held / 200 <= 0.99


def test_the_same_record_gives_the_same_interval():
    values = [float(number % 7) for number in range(50)]
    assert ratio_by_session(values, [7.0] * 50) == ratio_by_session(values, [7.0] * 50)
