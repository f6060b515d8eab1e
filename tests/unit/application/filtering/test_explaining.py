"""A session's next list, taken apart."""

import json
from dataclasses import replace

import numpy as np
import pytest

from riglm.domain.override import OverrideKind, OverrideScope
from riglm.domain.prediction import Prediction
from riglm.domain.session import Era
from riglm.domain.session_state import SessionState
from riglm.testing.records import an_override
from tests.unit.application.scripted_prediction import Stage, a_catalogue, a_session

ALL = [f"tool{number:02}" for number in range(30)]


@pytest.fixture
def catalogue():
    return a_catalogue(count=30)


def remembered(stage, session):
    """All that is remembered of a session."""
    state = stage.filtering.state(session)
    known = {name: getattr(state, name) for name in SessionState.__slots__}
    return {name: value.copy() if isinstance(value, list | dict | set) else value for name, value in known.items()}


def told(explained):
    """The tools by name."""
    return {each.tool: each for each in explained.tools}


async def about_mail(stage, session, catalogue, **signals):
    """A session whose list was chosen by these signals."""
    stage.prediction.signals = signals
    stage.filtering.know(session, catalogue)
    await stage.about(session, "mail", confidence=0.8)
    return stage.shown(session, catalogue)


async def test_it_tells_the_list_that_comes_next_and_asking_changes_nothing(catalogue):
    stage, session = Stage(), a_session()
    stage.prediction.signals = {"words": {"tool09": 3.0, "tool03": 2.0, "tool20": 1.0}}
    stage.filtering.know(session, catalogue)
    await stage.about(session, "mail", confidence=0.8)
    before = remembered(stage, session)
    first, second = stage.filtering.explain(session).told(), stage.filtering.explain(session).told()
    assert (first, remembered(stage, session)) == (second, before)
    assert stage.shown(session, catalogue) == list(first.shown) == ["tool03", "tool09", "tool20"]
    assert (first.size, first.surface, first.mode, first.predictor, first.live) == (
        3,
        "dynamic",
        "enforce",
        "hybrid",
        True,
    )
    assert (first.confidence, first.has_context, first.context_confidence) == (0.8, True, 0.8)
    assert first.reason == "predicted by the context"


async def test_contributions_add_up_to_the_scores_by_which_tools_are_ranked(catalogue):
    stage, session = Stage(), a_session()
    words = {name: float(number % 7) for number, name in enumerate(ALL)}
    await about_mail(stage, session, catalogue, words=words, use={"tool01": 9.0, "tool02": -2.0})
    explained = stage.filtering.explain(session).told()
    assert set(explained.signals) == {"likes", "words", "use"}
    for each in explained.tools:
        assert each.score == sum(each.contributions.values())
    assert [each.rank for each in explained.tools] == list(range(1, 31))
    scores = [each.score for each in explained.tools]
    assert scores == sorted(scores, reverse=True)
    assert explained.tools[0].tool == "tool01"


async def test_what_a_predictor_does_not_tell_the_origin_of_is_a_signal_of_its_own(catalogue, monkeypatch):
    stage, session = Stage(), a_session()
    await about_mail(stage, session, catalogue, words={"tool09": 3.0})

    def predict(session, state, names, *, explain=False):
        return Prediction(scores=np.arange(float(len(names))), contributions={}, confidence=0.5)

    monkeypatch.setattr(stage.prediction, "predict", predict)
    explained = stage.filtering.explain(session).told()
    assert explained.signals == ("other",)
    assert all(each.contributions == {"other": each.score} for each in explained.tools)


async def test_it_tells_what_the_list_would_be_if_a_signal_were_silent(catalogue):
    stage, session = Stage(), a_session()
    shown = await about_mail(
        stage, session, catalogue, words={"tool09": 3.0, "tool03": 2.0}, use={"tool20": 5.0, "tool21": 1.0}
    )
    assert shown == ["tool03", "tool09", "tool20"]
    without = stage.filtering.explain(session).told().without
    assert without["use"].removed == ("tool20",)
    assert len(without["use"].added) == 1
    assert (without["words"].added, without["words"].removed) == (("tool00", "tool21"), ("tool03", "tool09"))
    assert without["words"].shown == ("tool00", "tool20", "tool21")
    assert (without["likes"].shown, without["likes"].added, without["likes"].removed) == (tuple(shown), (), ())


async def test_what_the_list_would_be_without_a_signal_is_chosen_now_whatever_the_list_holds_from_before(catalogue):
    stage, session = Stage(retained_turns=0), a_session()
    await about_mail(stage, session, catalogue, words={"tool09": 3.0, "tool03": 2.0, "tool20": 1.0})
    stage.calls(session, "tool25")
    use = {"tool29": 9.0, "tool28": 8.0, "tool27": 7.0}
    stage.prediction.signals = {"words": {"tool11": 6.0, "tool09": 5.0, "tool12": 4.0}, "use": use, "mute": {}}
    explained = stage.filtering.explain(session).told()
    assert explained.shown == ("tool03", "tool09", "tool20", "tool25")
    without = explained.without["use"]
    assert without.shown == ("tool09", "tool11", "tool12")
    assert (without.added, without.removed) == (without.shown, ("tool27", "tool28", "tool29"))
    mute = explained.without["mute"]
    assert (mute.shown, mute.added, mute.removed) == (("tool27", "tool28", "tool29"), (), ())
    await stage.filtering.set_context(session, "calendar")
    assert stage.shown(session, catalogue) == list(mute.shown)


async def test_a_tool_that_was_used_in_the_session_says_so(catalogue):
    stage, session = Stage(retained_turns=0), a_session()
    await about_mail(stage, session, catalogue, words={"tool09": 3.0, "tool03": 2.0, "tool20": 1.0})
    stage.calls(session, "tool09", "tool25")
    explained = stage.filtering.explain(session).told()
    assert set(explained.shown) == {"tool03", "tool09", "tool20", "tool25"}
    assert told(explained)["tool25"].why == "used in this session"


async def test_a_list_that_is_whole_stays_whole_without_any_signal(catalogue):
    stage, session = Stage(), a_session()
    stage.prediction.signals = {"words": {"tool09": 3.0}}
    stage.shown(session, catalogue)
    await stage.about(session, "mail", confidence=0.1)
    explained = stage.filtering.explain(session).told()
    assert explained.size == 30
    assert explained.without["words"].removed == explained.without["words"].added == ()
    assert told(explained)["tool05"].why.startswith("all are shown: ")


async def test_probabilities_go_with_the_places_that_the_scores_give(catalogue, monkeypatch):
    stage, session = Stage(), a_session()
    await about_mail(stage, session, catalogue, words={"tool09": 3.0}, use={"tool03": 2.0})
    seen = []
    predict = stage.prediction.predict

    def probable(*asked, explain=False):
        found = predict(*asked, explain=explain)
        likely = np.empty(len(found.scores))
        likely[np.argsort(-found.scores, kind="stable")] = np.log(np.linspace(0.9, 0.1, len(likely)))
        return replace(found, log_probabilities=likely)

    def size(session, prediction):
        seen.append(prediction)
        return 3

    monkeypatch.setattr(stage.prediction, "predict", probable)
    monkeypatch.setattr(stage.prediction, "size", size)
    stage.filtering.explain(session).told()
    for prediction in seen:
        order = np.argsort(-prediction.scores, kind="stable")
        assert (np.diff(prediction.log_probabilities[order]) <= 0).all()


def test_every_tool_that_is_not_shown_has_its_reason(catalogue):
    exclude = an_override(kind=OverrideKind.EXCLUDE, tool="tool05", reason="it is slow")
    pin = an_override(kind=OverrideKind.PIN, tool="tool06", reason="we love it")
    stage = Stage(overrides=[exclude, pin], denylist=["tool07"], pinned=["tool08"], cold_start_limit=3)
    session = a_session()
    stage.prediction.signals = {"words": {"tool20": 1.0}}
    shown = stage.shown(session, catalogue)
    found = told(stage.filtering.explain(session).told())
    assert set(found) == set(ALL)
    assert shown == [each.tool for each in sorted(found.values(), key=lambda each: each.tool) if each.shown]
    assert (found["tool05"].standing, found["tool05"].rank, found["tool05"].score) == ("away", None, None)
    assert found["tool05"].why == "an override (exclude, all) was made for it: it is slow"
    assert (found["tool07"].standing, found["tool07"].why) == ("denied", "denied: filtering.denylist names it")
    assert (found["tool08"].standing, found["tool08"].why) == ("kept", "filtering.pinned names it")
    assert (found["tool06"].standing, found["tool06"].shown) == ("kept", True)
    assert found["tool06"].why == "an override (pin, all) was made for it: we love it"
    assert found["tool20"].why == "number 1 by prediction"
    assert found["tool29"].why == "number 28 by prediction, and the list holds 3"


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ({"allowlist": ["tool00"]}, "denied: filtering.allowlist does not name it"),
        (
            {"allowlist": ["tool00"], "denylist": ["tool02"]},
            "denied: filtering.denylist names it, or filtering.allowlist does not",
        ),
    ],
)
def test_a_denial_names_the_list(catalogue, rules, why):
    stage, session = Stage(**rules), a_session()
    stage.shown(session, catalogue)
    found = told(stage.filtering.explain(session).told())["tool01"]
    assert (found.standing, found.shown, found.why) == ("denied", False, why)


async def test_a_tool_under_the_name_of_riglm_s_own_is_reached_in_another_way():
    stage, session = Stage(), a_session()
    catalogue = a_catalogue(*ALL, "call_tool")
    await about_mail(stage, session, catalogue, words={"call_tool": 9.0, "tool09": 3.0})
    found = told(stage.filtering.explain(session).told())["call_tool"]
    assert (found.rank, found.shown, found.why) == (
        1,
        False,
        "riglm's own tool has this name: it is reached by call_tool",
    )


async def test_what_would_be_chosen_now_and_is_not_shown_yet_is_told_so(catalogue):
    stage, session = Stage(), a_session()
    await about_mail(stage, session, catalogue, words={"tool09": 3.0, "tool03": 2.0, "tool20": 1.0})
    stage.prediction.signals = {"words": {"tool29": 5.0, "tool28": 4.0, "tool27": 3.0}}
    explained = stage.filtering.explain(session).told()
    assert stage.shown(session, catalogue) == list(explained.shown) == ["tool03", "tool09", "tool20"]
    found = told(explained)
    assert found["tool09"].why == "chosen before: while the context is the same, lists only grow"
    promise = "the list takes it in when it is used, and is chosen anew with the next context"
    assert found["tool29"].why == f"number 1 by prediction now: {promise}"
    for turn in range(8):
        stage.calls(session, "tool09", turn_key=f"turn {turn}")
        assert stage.shown(session, catalogue) == ["tool03", "tool09", "tool20"]
    stage.calls(session, "tool29")
    assert stage.shown(session, catalogue) == ["tool03", "tool09", "tool20", "tool29"]
    stage.prediction.likes = ("tool28",)
    await stage.filtering.set_context(session, "calendar")
    assert "tool28" in stage.shown(session, catalogue)


async def test_a_list_whose_context_has_no_vector_yet_is_said_to_follow_once_it_has(catalogue):
    stage, session = Stage(cold_start_limit=2), a_session()
    stage.shown(session, catalogue)
    await stage.about(session, "mail", "tool00", "tool01", confidence=0.1)
    stage.shown(session, catalogue)
    stage.prediction.likes, stage.prediction.confidence = ("tool28", "tool29"), 0.8
    why = told(stage.filtering.explain(session).told())["tool28"].why
    assert why.endswith("chosen anew with the next context, or once this one has its vector")
    state = stage.filtering.state(session)
    state.context = replace(state.context, vector=np.ones((1, 4)))
    assert "tool28" in stage.shown(session, catalogue)


async def test_a_tool_that_ranks_high_and_is_hidden_is_told_what_holds_the_places(catalogue):
    stage, session = Stage(pinned=["tool00"]), a_session()
    await about_mail(stage, session, catalogue, words={"tool09": 3.0, "tool03": 2.0, "tool20": 1.0})
    stage.calls(session, "tool25")
    stage.prediction.signals = {"words": {f"tool{number}": number for number in range(26, 30)}}
    explained = stage.filtering.explain(session).told()
    assert explained.shown == ("tool00", "tool03", "tool09", "tool25")
    reasons = "some of lower rank: 1 kept, 1 used, 2 chosen before (while the context is the same, lists only grow)"
    assert told(explained)["tool27"].why == f"number 3 by prediction, and the list holds 4, {reasons}"


def test_the_warm_set_with_which_a_list_begins_is_the_reason_for_its_tools_and_for_those_it_keeps_out(catalogue):
    stage, session = Stage(cold_start_limit=2), a_session()
    stage.prediction.warm = ("tool29",)
    stage.prediction.signals = {"words": {"tool20": 2.0, "tool21": 1.0}}
    assert stage.shown(session, catalogue) == ["tool20", "tool29"]
    found = told(stage.filtering.explain(session).told())
    assert found["tool20"].why == "number 1 by prediction"
    assert found["tool29"].why == "in the warm set, with which a list begins"
    assert found["tool21"].why == "number 2 by prediction, and the list holds 2, some of lower rank: 1 in the warm set"


@pytest.mark.parametrize("surface", ["stable", "hints"])
async def test_where_a_warm_set_is_shown_it_is_the_reason(catalogue, surface):
    stage, session = Stage(surface=surface), a_session(era=Era.MODERN)
    stage.prediction.warm = ("tool04", "tool11")
    stage.prediction.signals = {"words": {"tool20": 1.0}}
    await stage.filtering.prepare(session, catalogue)
    explained = (stage.shown(session, catalogue), stage.filtering.explain(session).told())[1]
    found = told(explained)
    assert explained.surface == surface
    assert explained.without["words"].removed == ()
    if surface == "stable":
        assert explained.shown == ("tool04", "tool11")
        assert found["tool04"].why.startswith("in the warm set of this epoch")
        assert (found["tool20"].rank, found["tool20"].why) == (1, "not in the warm set of this epoch")
    else:
        assert explained.size == 30
        assert found["tool04"].why == "marked: in the warm set of this epoch"
        assert found["tool20"].why == "shown, and not marked"


def test_a_small_catalogue_is_shown_whole(catalogue):
    stage, session = Stage(passthrough_below={"tools": 99}), a_session()
    stage.shown(session, catalogue)
    explained = stage.filtering.explain(session).told()
    assert (explained.size, explained.reason) == (30, "there is nothing to save")


def test_where_filtering_is_off_nothing_is_chosen(catalogue):
    stage, session = Stage(enabled=False), a_session()
    stage.filtering.know(session, catalogue)
    explained = stage.filtering.explain(session).told()
    assert (explained.mode, explained.reason, explained.size) == ("off", "filtering is off", 30)
    assert {each.why for each in explained.tools} == {"all are shown: filtering is off"}


def test_in_the_mode_shadow_it_tells_what_would_be_shown(catalogue):
    stage, session = Stage(mode="shadow", cold_start_limit=2), a_session()
    stage.shown(session, catalogue)
    explained = stage.filtering.explain(session).told()
    assert (explained.mode, explained.size) == ("shadow", 2)


def test_before_any_list_there_is_nothing_to_tell():
    explained = Stage().filtering.explain(a_session()).told()
    assert (explained.tools, explained.shown) == ((), ())


def test_of_a_session_that_is_gone_the_past_is_given(catalogue):
    stage = Stage(max_tools=3)
    stage.shown(a_session(), catalogue)
    stage.prediction.signals = {"words": {"tool20": 1.0}}
    past = SessionState()
    past.called("tool11", 990.0)
    gone = a_session()
    explained = stage.filtering.explain(gone, past, ["tool20", "tool11", "lost", "tool12"]).told()
    assert (explained.live, explained.reason) == (False, "predicted by what was used")
    assert [each.tool for each in explained.tools] == ["tool20", "tool11", "lost", "tool12"]
    assert told(explained)["tool11"].why == "used lately in this session"
    assert stage.filtering._states.known(gone) is None


def test_an_override_of_another_session_is_no_reason(catalogue):
    mine, other = a_session(), a_session()
    override = an_override(kind=OverrideKind.EXCLUDE, tool="tool05", scope=OverrideScope.SESSION, key=str(other.id))
    stage = Stage(overrides=[override])
    for session in (mine, other):
        stage.shown(session, catalogue)
    assert told(stage.filtering.explain(mine).told())["tool05"].standing == "open"
    assert told(stage.filtering.explain(other).told())["tool05"].why == "an override (exclude, session) was made for it"


def test_a_name_of_any_spelling_can_be_one_of_a_past_catalogue():
    stage = Stage()
    names = ['a"b', "c\\d", "\u00e9"]
    explained = stage.filtering.explain(a_session(), SessionState(), names).told()
    assert [each.tool for each in explained.tools] == names
    assert json.dumps(explained.shown)
