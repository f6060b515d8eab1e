"""The list that follows a session of the handshake era."""

import numpy as np
import pytest

from riglm.domain import jsonrpc
from riglm.domain.invocation import Found
from riglm.domain.prediction import Context
from tests.unit.application.scripted_prediction import Stage, a_catalogue, a_session, names_in

ALL = [f"tool{number:02}" for number in range(30)]


@pytest.fixture
def catalogue():
    return a_catalogue(count=30)


def test_a_session_of_which_nothing_is_known_is_shown_everything(catalogue):
    stage = Stage()
    stage.prediction.likes = ("tool05",)
    assert stage.shown(a_session(), catalogue) == ALL
    assert stage.prediction.asked == 0


def test_a_cold_start_shows_at_most_its_limit_and_the_search_first(catalogue):
    stage = Stage(cold_start_limit=4)
    stage.prediction.likes = ("tool20",)
    listed = stage.filtering.compose(a_session(), catalogue)
    assert listed.selection.shown == ("tool00", "tool01", "tool02", "tool20")
    assert names_in(listed.raw)[0] == "search_available_tools"


def test_a_cold_start_without_any_prediction_shows_the_first_tools(catalogue):
    assert Stage(cold_start_limit=2).shown(a_session(), catalogue) == ALL[:2]


async def test_a_limited_cold_start_shows_what_was_learned_for_the_epoch_before_any_model_is_loaded(catalogue):
    stage, session = Stage(cold_start_limit=4), a_session()
    stage.prediction.warm = ("tool25", "tool11", "tool12")
    assert stage.filtering.goes_by_epochs(session)
    await stage.filtering.prepare(session, catalogue)
    assert stage.prediction.prepared
    assert stage.shown(session, catalogue) == ["tool00", "tool11", "tool12", "tool25"]


async def test_an_unlimited_cold_start_waits_for_nothing(catalogue):
    stage, session = Stage(), a_session()
    assert not stage.filtering.goes_by_epochs(session)
    await stage.filtering.prepare(session, catalogue)
    assert not stage.prediction.prepared


@pytest.mark.parametrize(("confidence", "count"), [(0.0, 30), (0.29, 30), (0.3, 3), (0.7, 3), (0.71, 3), (1.0, 3)])
async def test_below_three_tenths_of_confidence_everything_is_shown(catalogue, confidence, count):
    stage, session = Stage(), a_session()
    await stage.about(session, "mail", "tool09", "tool03", confidence=confidence)
    stage.shown(session, catalogue)
    await stage.about(session, "post", "tool09", "tool03", confidence=confidence)
    assert len(stage.shown(session, catalogue)) == count


@pytest.mark.parametrize(("confidence", "place"), [(0.3, 0), (0.7, 0), (0.71, 3)])
async def test_the_search_stands_first_and_in_full_until_the_choice_is_sure(catalogue, confidence, place):
    stage, session = Stage(), a_session()
    stage.filtering.know(session, catalogue)
    await stage.about(session, "mail", "tool09", "tool03", "tool07", confidence=confidence)
    entries = jsonrpc.elements(stage.filtering.compose(session, catalogue).raw)
    names = names_in(stage.filtering.compose(session, catalogue).raw)
    assert names.index("search_available_tools") == place
    assert (len(bytes(entries[place])) > 700) is (place == 0)


async def test_no_confidence_at_all_is_too_little(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    assert not await stage.about(session, "mail", "tool01", confidence=float("nan"))
    assert stage.shown(session, catalogue) == ALL


async def test_a_filtered_list_keeps_the_order_and_the_bytes_of_the_catalogue(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    assert await stage.about(session, "mail", "tool09", "tool03", "tool07")
    entries = [bytes(entry) for entry in jsonrpc.elements(stage.filtering.compose(session, catalogue).raw)]
    expected = [bytes(catalogue.by_name[name].raw) for name in ("tool03", "tool07", "tool09")]
    assert entries[1:4] == expected


async def test_the_size_lies_between_its_bounds(catalogue):
    stage, session = Stage(min_tools=2, max_tools=6), a_session()
    for most, expected in ((1, 2), (4, 4), (9, 6)):
        stage.prediction.most = most
        await stage.about(session, f"task {most}", *ALL)
        stage.filtering.state(session).shown = None
        assert len(stage.shown(session, catalogue)) == expected


async def test_a_hundred_lists_are_the_same_bytes(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    await stage.about(session, "mail", "tool09", "tool03")
    first = stage.filtering.compose(session, catalogue).raw
    for number in range(100):
        stage.prediction.likes = (f"tool{number % 30:02}",)
        stage.prediction.confidence = number / 100
        assert stage.filtering.compose(session, catalogue).raw == first


async def test_two_sessions_with_one_choice_share_the_bytes_of_their_list(catalogue):
    stage = Stage()
    assert stage.filtering.compose(a_session(), catalogue).raw is stage.filtering.compose(a_session(), catalogue).raw


async def test_a_searched_tool_that_is_used_is_in_the_next_list(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    await stage.about(session, "notify", "tool01", "tool02", "tool03")
    assert not stage.calls(session, "tool20", found=Found.SEARCHED)
    assert stage.shown(session, catalogue) == ["tool01", "tool02", "tool03", "tool20"]


async def test_within_a_context_the_list_only_grows(catalogue):
    stage, session = Stage(retained_turns=1), a_session()
    stage.shown(session, catalogue)
    await stage.about(session, "mail", "tool01", "tool02", "tool03")
    seen = set()
    for turn in range(12):
        stage.prediction.likes = (f"tool{turn:02}",)
        stage.now += 1000
        stage.calls(session, f"tool{turn * 2:02}")
        shown = set(stage.shown(session, catalogue))
        assert seen <= shown
        seen = shown
    assert len(seen) == 14


async def test_a_new_context_ranks_all_anew_and_keeps_what_was_used_in_the_last_three_turns(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    await stage.about(session, "mail", "tool01", "tool02", "tool03")
    stage.calls(session, "tool01")
    assert await stage.about(session, "calendar", "tool21", "tool22", "tool23")
    assert stage.shown(session, catalogue) == ["tool01", "tool21", "tool22"]
    for _ in range(3):
        stage.now += 1000
        stage.calls(session, "tool21")
    assert await stage.about(session, "files", "tool11", "tool12", "tool13")
    assert stage.shown(session, catalogue) == ["tool11", "tool12", "tool21"]


async def test_the_same_context_again_changes_nothing(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    assert await stage.about(session, "mail", "tool01", "tool02")
    before = stage.shown(session, catalogue)
    assert not await stage.about(session, "mail", "tool28", "tool29")
    assert stage.shown(session, catalogue) == before


async def test_a_context_with_the_same_tools_changes_no_byte(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    await stage.about(session, "mail", "tool01", "tool02", "tool03", confidence=0.5)
    before = stage.filtering.compose(session, catalogue).raw
    assert not await stage.about(session, "letters", "tool03", "tool02", "tool01", confidence=0.9)
    assert stage.filtering.compose(session, catalogue).raw == before


async def test_a_list_that_saves_less_than_its_change_costs_is_not_sent(catalogue):
    stage, session = Stage(max_tools=30), a_session()
    stage.shown(session, catalogue)
    stage.prediction.most = 27
    assert not await stage.about(session, "mail", *ALL)
    assert stage.shown(session, catalogue) == ALL
    stage.prediction.most = 5
    assert await stage.about(session, "post", *ALL)
    assert len(stage.shown(session, catalogue)) == 5


async def test_a_list_that_lacks_a_likely_tool_is_changed_whatever_it_costs(catalogue):
    stage, session = Stage(expected_requests=0), a_session()
    stage.filtering.know(session, catalogue)
    await stage.about(session, "post", "tool01", "tool02", "tool03")
    stage.shown(session, catalogue)
    assert await stage.about(session, "files", "tool01", "tool02", "tool09")
    assert stage.shown(session, catalogue) == ["tool01", "tool02", "tool09"]


async def test_a_context_of_which_too_little_is_known_brings_everything_back(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    await stage.about(session, "mail", "tool01", "tool02")
    stage.shown(session, catalogue)
    assert await stage.about(session, "something else", "tool01", confidence=0.1)
    assert stage.shown(session, catalogue) == ALL


async def test_an_upstreams_tool_with_the_name_of_one_of_riglms_makes_no_list_differ():
    stage, session = Stage(), a_session()
    catalogue = a_catalogue("call_tool", *ALL)
    stage.shown(session, catalogue)
    assert not await stage.about(session, "mail", "tool01", confidence=0.0)
    assert stage.shown(session, catalogue) == ALL


async def test_lists_change_at_most_once_for_each_context(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    announced = 0
    for number in range(10):
        announced += await stage.about(session, f"task {number}", f"tool{number:02}", "tool20", "tool21")
        for _ in range(5):
            announced += stage.calls(session, f"tool{number:02}", "tool21")
            stage.shown(session, catalogue)
    assert announced <= 10
    assert stage.filtering.state(session).changes <= 10


def test_without_a_context_the_list_is_cut_once_at_the_first_turn_after_something_was_used(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    stage.prediction.likes = ("tool04", "tool05", "tool06")
    assert not stage.calls(session, "tool04", turn_key="one")
    assert stage.shown(session, catalogue) == ALL
    assert stage.calls(session, "tool05", turn_key="two")
    assert stage.shown(session, catalogue) == ["tool04", "tool05", "tool06"]
    stage.prediction.likes = ("tool10", "tool11", "tool12")
    assert not stage.calls(session, "tool05", turn_key="three")
    assert stage.shown(session, catalogue) == ["tool04", "tool05", "tool06"]


def test_without_a_context_an_unsure_prediction_cuts_nothing(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    stage.prediction.likes, stage.prediction.confidence = ("tool04",), 0.2
    assert not stage.calls(session, "tool04", "tool05", turn_key="one")
    assert not stage.calls(session, "tool04", "tool05", turn_key="two")
    assert stage.shown(session, catalogue) == ALL


def test_a_session_whose_first_list_comes_after_calls_is_filtered_at_once(catalogue):
    stage, session = Stage(), a_session()
    stage.filtering.know(session, catalogue)
    stage.prediction.likes = ("tool04", "tool05", "tool06")
    stage.calls(session, "tool04")
    assert stage.shown(session, catalogue) == ["tool04", "tool05", "tool06"]


async def test_a_tool_that_an_upstream_adds_during_the_session_is_shown(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    await stage.about(session, "mail", "tool01", "tool02", "tool03")
    stage.shown(session, catalogue)
    grown = a_catalogue("unlocked", *ALL)
    assert stage.shown(session, grown) == ["unlocked", "tool01", "tool02", "tool03"]


async def test_of_many_tools_that_come_late_only_the_likely_ones_are_shown(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    await stage.about(session, "mail", "tool01", "tool02", "tool03")
    stage.shown(session, catalogue)
    stage.prediction.likes = ("late07", "tool01", "tool02")
    grown = a_catalogue(*ALL, *(f"late{number:02}" for number in range(50)))
    assert stage.shown(session, grown) == ["tool01", "tool02", "tool03", "late07"]


async def test_a_tool_that_an_upstream_takes_away_is_gone_from_the_list(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    await stage.about(session, "mail", "tool01", "tool02", "tool03")
    stage.shown(session, catalogue)
    assert stage.shown(session, a_catalogue(*(name for name in ALL if name != "tool02"))) == ["tool01", "tool03"]


async def test_a_prediction_that_fails_shows_everything_and_is_logged_once(catalogue, caplog):
    stage, session = Stage(), a_session()
    stage.prediction.error = ZeroDivisionError("the plug-in")
    for _ in range(3):
        assert stage.shown(session, catalogue) == ALL
    assert not stage.calls(session, "tool01")
    assert [record.getMessage() for record in caplog.records] == [
        "filtering failed; all that is allowed is shown, and this is said once"
    ]


def test_what_is_denied_stays_denied_when_prediction_fails(catalogue):
    stage = Stage(denylist=["tool00"])
    stage.prediction.error = ZeroDivisionError()
    assert stage.shown(a_session(), catalogue) == ALL[1:]


def test_a_call_teaches_before_the_state_knows_it(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    stage.calls(session, "tool01", "tool02", found=Found.NAMED)
    assert stage.prediction.lessons == [("tool01", Found.NAMED, ()), ("tool02", Found.NAMED, ("tool01",))]


def test_a_call_of_a_tool_that_nobody_has_teaches_nothing(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    stage.calls(session, "invented")
    assert (stage.prediction.lessons, stage.filtering.state(session).calls) == ([], [])


async def test_a_context_that_comes_before_any_list_is_announced(catalogue):
    stage, session = Stage(), a_session()
    stage.filtering.know(session, catalogue)
    assert await stage.about(session, "mail", "tool01", "tool02", "tool03")
    assert stage.shown(session, catalogue) == ["tool01", "tool02", "tool03"]


async def test_a_context_whose_vector_comes_late_is_chosen_for_when_it_comes(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    assert not await stage.about(session, "mail", "tool01", "tool02", "tool03", confidence=0.0)
    stage.prediction.confidence = 0.5
    assert not stage.calls(session, "tool01")
    stage.filtering.state(session).context = Context(text="mail", vector=np.ones(1), model="m")
    assert stage.calls(session, "tool01")
    assert stage.shown(session, catalogue) == ["tool01", "tool02", "tool03"]
    stage.prediction.likes = ("tool11", "tool12", "tool13")
    assert not stage.calls(session, "tool01")
    assert stage.shown(session, catalogue) == ["tool01", "tool02", "tool03"]


async def test_a_vector_that_comes_late_changes_no_list_a_second_time(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    assert await stage.about(session, "mail", "tool01", "tool02", "tool03")
    stage.shown(session, catalogue)
    assert await stage.about(session, "files", "tool09", confidence=0.0)
    stage.prediction.confidence = 0.5
    stage.filtering.state(session).context = Context(text="files", vector=np.ones(1), model="m")
    assert not stage.calls(session, "tool09")
    assert stage.shown(session, catalogue) == ALL


def test_states_are_forgotten_with_their_session_and_bounded(catalogue):
    stage = Stage()
    sessions = [a_session() for _ in range(5)]
    for session in sessions:
        stage.calls(session, "tool01")
        stage.shown(session, catalogue)
    stage.filtering.forget(sessions[0])
    assert stage.filtering.state(sessions[0]).shown is None
    assert stage.filtering.state(sessions[1]).shown is not None


async def test_ten_thousand_tools_are_cut_to_a_few():
    catalogue = a_catalogue(*(f"tool{number}" for number in range(10_000)))
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    assert await stage.about(session, "mail", "tool9999", "tool5")
    assert len(stage.shown(session, catalogue)) == 3


def test_an_empty_catalogue_is_an_empty_list():
    stage = Stage()
    listed = stage.filtering.compose(a_session(), a_catalogue(count=0))
    assert (listed.selection.shown, listed.selection.hidden) == ((), ())
