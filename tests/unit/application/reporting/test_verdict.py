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


def test_every_reason_names_its_threshold():
    texts = {reason.name: reason.text for reason in judge(GOOD).reasons}
    assert "20 tools and 5,000 tokens" in texts["catalogue"]
    assert "it takes 20 and 100" in texts["sessions"]
    assert "at least 80 must" in texts["hits"]
    assert "90 to 95 of 100 calls" in texts["hits"]
