"""Whether filtering is worth switching on."""

from dataclasses import replace

import pytest

from riglm.application.reports.verdict import Interval, VerdictInput, judge

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
