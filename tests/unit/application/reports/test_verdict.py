"""Whether filtering is worth switching on."""

import random
from dataclasses import replace

import pytest

from riglm.application.reports.figures import CallObservation, ListObservation, Observations, UsageFigures
from riglm.application.reports.report import (
    Interval,
    VerdictInput,
    judge,
    judge_figures,
    ratio_by_session,
    share_by_session,
    wilson,
)
from riglm.domain.exposure import TokenTally
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.ports.analytics import TrainingSession
from tests.records import a_session

GOOD = VerdictInput(is_on=False, sessions=40, calls=400, hidden=True, price=Interval(0.6, 0.9))


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
        ({"sessions": 2, "price": Interval(0.5, 0.5)}, "too_early"),
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


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"sessions": 1, "calls": 8}, "No verdict yet: it takes 19 more sessions and 92 more tool calls."),
        ({"sessions": 19}, "No verdict yet: it takes 1 more session."),
        ({"price": Interval(0.9, 1.1)}, "No verdict yet: sessions cost 0.90 to 1.10 of the price without a proxy; "
         "it must be below 1."),
        ({"sessions": 0, "calls": 0, "empty": "no session is recorded."}, "No verdict yet: no session is recorded."),
    ],
)  # fmt: skip
def test_one_line_has_what_a_verdict_still_takes(changes, text):
    assert judge(replace(GOOD, **changes)).text == text
    effect = "Nothing is hidden from Claude Code."
    assert judge(replace(GOOD, effect=effect, **changes)).text == f"{text} {effect}"


def figures_of(*lists, client="cursor", calls=0, **usage):
    """The figures of one session with these lists of 9 tools, each given as mode, surface and number of tools."""
    session, server = a_session(started_at=0.0), "files"
    common = {"session": session.id, "at": 1.0, "available": 9}
    seen = tuple(
        ListObservation(**common, mode=mode, surface=surface, shown=shown, changed=False, searches=0,
                        tokens=TokenTally())
        for mode, surface, shown in lists
    )  # fmt: skip
    made = CallObservation(**common, tool="a", server=server, fresh=True, is_hit=True, shown=2,
                           mode=lists[0][0] if lists else "off", found=DiscoveryMethod.LISTED, hides=True)  # fmt: skip
    of_client = TrainingSession(
        id=session.id, started_at=0.0, client=client, client_id="", principal="", project="", profile="",
        tools_available=(), calls=(),
    )  # fmt: skip
    return Observations(sessions=(of_client,), usage=UsageFigures(**usage), lists=seen, uses=(made,) * calls)


@pytest.mark.parametrize(
    ("figures", "rules", "stored", "words"),
    [
        (figures_of(), {}, 0, "no session is recorded"),
        (figures_of(), {"enabled": False}, 0, "filtering is off"),
        (figures_of(), {"strategy": "allowlist", "allowlist": ["a"]}, 0, "`filtering.strategy` is allowlist"),
        (figures_of(), {}, 7, "none of the 7 sessions in the store counts"),
        (figures_of(sessions=1), {}, 1, "no tool was called yet, in 1 session"),
        (figures_of(sessions=3, used_sessions=3, unlisted_sessions=3), {}, 3, "3 sessions used a tool without a"),
        (figures_of(("off", "", 9), sessions=1, used_sessions=1), {}, 1, "while filtering was on"),
        (figures_of(("shadow", "full", 9), sessions=1, used_sessions=1, calls=1), {}, 1, "the surface `full`"),
        (figures_of(("shadow", "dynamic", 9), calls=1), {}, 1, "19 more sessions and 99 more tool calls. Nothing would "
         "be hidden: of 9 tools, that does not pay."),
        (figures_of(("enforce", "hints", 2), client="claude-code", calls=1), {}, 1, "99 more tool calls. Nothing is "
         "hidden from Claude Code, which defers tools itself: riglm has it load 2 of 9 at once (preload hints)."),
        (figures_of(("shadow", "hints", 2), client="own"), {}, 1, "from the client, which defers tools itself: riglm "
         "would have it load 2 of 9 at once"),
    ],
)  # fmt: skip
def test_the_reason_is_that_of_the_store_and_the_configuration(figures, rules, stored, words):
    verdict = judge_figures(figures, FilteringSettings.model_validate(rules), stored=stored)
    assert verdict.text.startswith("No verdict yet: ")
    assert words in verdict.text


BAD = {"hidden": False, "price": Interval(1.1, 1.3)}


@pytest.mark.parametrize("changes", [{"sessions": 1, "calls": 11}, {"sessions": 19}, {"calls": 99}])
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
