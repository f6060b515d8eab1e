"""Whether filtering is worth switching on."""

from dataclasses import replace

import pytest

from riglm.application.reporting.intervals import Interval
from riglm.application.reporting.verdict import Evidence, judge

GOOD = Evidence(
    is_on=False,
    others=0,
    sessions=40,
    calls=400,
    tools=120.0,
    tokens=20_000.0,
    whole_tools=20,
    whole_tokens=5_000,
    recorded=40,
    basis="record",
    hits=Interval(0.9, 0.95),
    hidden=True,
    net=Interval(4_000.0, 6_000.0),
    priced=Interval(-100.0, 900.0),
)


def test_what_holds_in_all_respects_is_worth_switching_on():
    found = judge(GOOD)
    assert found.code == "worth_it"
    assert "riglm enforce" in found.text
    assert all(reason.met for reason in found.reasons)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"sessions": 0, "calls": 0}, "empty"),
        ({"tools": 12.0, "tokens": 2_000.0}, "nothing_to_save"),
        ({"tools": 12.0, "tokens": 9_000.0}, "worth_it"),
        ({"sessions": 19}, "too_early"),
        ({"calls": 99}, "too_early"),
        ({"tools": 12.0, "tokens": None}, "unsure"),
        ({"tools": 120.0, "tokens": None}, "worth_it"),
        ({"hidden": False, "recorded": 0, "net": None, "priced": None}, "unsure"),
        ({"hidden": False, "recorded": 19}, "unsure"),
        ({"recorded": 19, "net": Interval(-9.0, -9.0), "priced": Interval(-9.0, -9.0)}, "unsure"),
        ({"recorded": 2, "net": Interval(9.0, 9.0), "priced": Interval(9.0, 9.0)}, "unsure"),
        ({"hidden": False}, "nothing_hidden"),
        ({"hits": Interval(0.6, 0.79)}, "too_many_misses"),
        ({"hits": Interval(0.75, 0.9)}, "unsure"),
        ({"hits": None}, "unsure"),
        ({"net": Interval(-900.0, -100.0), "priced": Interval(-90.0, -10.0)}, "costs_more"),
        ({"net": Interval(-900.0, -100.0), "priced": Interval(10.0, 90.0)}, "worth_it"),
        ({"net": Interval(-900.0, 900.0), "priced": Interval(-90.0, 90.0)}, "unsure"),
        ({"net": None, "priced": None}, "unsure"),
        ({"hidden": None, "net": None, "priced": None}, "worth_it"),
    ],
)
def test_the_first_thing_that_does_not_hold_decides(changes, code):
    assert judge(replace(GOOD, **changes)).code == code


@pytest.mark.parametrize("changes", [{}, {"hits": Interval(0.1, 0.2)}])
def test_what_is_on_already_is_not_recommended_to_be_switched_on(changes):
    found = judge(replace(GOOD, is_on=True, **changes))
    assert "Filtering is on" in found.text
    assert "riglm enforce" not in found.text


def test_nothing_in_this_time_is_told_from_nothing_at_all():
    nothing = judge(replace(GOOD, sessions=0, calls=0))
    elsewhere = judge(replace(GOOD, sessions=0, calls=0, others=7))
    assert "Nothing is recorded yet" in nothing.text
    assert "7 others" in elsewhere.text


BAD = {"hidden": False, "hits": Interval(0.28, 0.787), "net": Interval(-9.0, -1.0), "priced": Interval(-9.0, -1.0)}


@pytest.mark.parametrize("changes", [{"sessions": 1, "calls": 11, "recorded": 1}, {"sessions": 19}, {"calls": 99}])
def test_of_too_few_sessions_or_calls_nothing_that_is_measured_is_said_to_fail_or_to_hold(changes):
    for measured in (BAD, {}):
        marks = {reason.name: reason.met for reason in judge(replace(GOOD, **measured, **changes)).reasons}
        assert marks["sessions"] is False
        assert marks["hits"] is marks["tokens"] is None
    assert [reason.met for reason in judge(replace(GOOD, **BAD)).reasons] == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("hits", "told", "met"),
    [
        (Interval(0.796, 0.914), "79 to 91 of 100", None),
        (Interval(0.28, 0.799), "28 to 79 of 100", False),
        (Interval(0.8, 0.9), "80 to 90 of 100", True),
    ],
)
def test_what_is_told_lies_on_the_side_of_the_threshold_that_its_mark_says(hits, told, met):
    [reason] = [reason for reason in judge(replace(GOOD, hits=hits)).reasons if reason.name == "hits"]
    assert (reason.text.partition(" calls")[0], reason.met) == (told, met)


def test_every_reason_names_its_threshold():
    texts = {reason.name: reason.text for reason in judge(GOOD).reasons}
    assert "20 tools and 5,000 tokens" in texts["catalogue"]
    assert "it takes 20 and 100" in texts["sessions"]
    assert "at least 80 must" in texts["hits"]
    assert "90 to 95 of 100 calls" in texts["hits"]
