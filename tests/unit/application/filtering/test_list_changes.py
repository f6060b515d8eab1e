"""When the list of a session that is under way changes: only if that pays."""

import pytest

from riglm.domain.schemas.section import PriceSettings
from tests.unit.application.scripted_prediction import ALL, Stage, a_catalogue, a_session

UNCACHED = PriceSettings(preset="uncached").prices()
START = {"tool09": 0.9, "tool02": 0.5}


def started(session, catalog, prices=UNCACHED, **rules):
    """A session that has listed tool02 and tool09. Without prompt caching, changes of short lists pay."""
    stage = Stage(prices=prices, **rules)
    stage.learned(START)
    assert stage.shown(session, catalog) == ["tool02", "tool09"]
    return stage


def started_whole(session, count, **rules):
    """A session that has listed all of so many tools: each is needed in half of the sessions."""
    stage, catalog = Stage(**rules), a_catalogue(count=count)
    stage.learned(dict.fromkeys(catalog.names, 0.5))
    assert len(stage.shown(session, catalog)) == count
    return stage, catalog


def with_context(session, catalog, **rules):
    """A session that sets a context before its first list."""
    stage = Stage(**rules)
    stage.learned(START)
    stage.filtering.know(session, catalog)
    return stage


@pytest.mark.parametrize(("count", "pays"), [(30, False), (60, True)])
async def test_a_context_shortens_a_whole_list_if_that_list_is_long_enough(count, pays):
    """Rewriting the prompt costs a fixed amount; what later requests save grows with the list."""
    session = a_session()
    stage, catalog = started_whole(session, count)
    assert await stage.about(session, "mail", "tool01", "tool02", confidence=0.8) is pays
    assert len(stage.shown(session, catalog)) == (2 if pays else count)


@pytest.mark.parametrize(
    ("confidence", "shown"),
    [
        (0.0, ["tool02", "tool09"]),
        (0.29, ["tool02", "tool09"]),
        (float("nan"), ["tool02", "tool09"]),
        (0.3, ["tool20", "tool21"]),
        (0.7, ["tool20", "tool21"]),
        (1.0, ["tool20", "tool21"]),
    ],
)
async def test_below_three_tenths_of_confidence_the_first_list_stays(catalog, confidence, shown):
    session = a_session()
    stage = with_context(session, catalog)
    await stage.about(session, "mail", "tool20", "tool21", confidence=confidence)
    assert stage.shown(session, catalog) == shown


async def test_tools_of_the_last_three_turns_stay(catalog):
    session = a_session()
    stage = started(session, catalog)
    stage.calls(session, "tool09")
    assert await stage.about(session, "calendar", "tool21", "tool22")
    assert stage.shown(session, catalog) == ["tool09", "tool21", "tool22"]
    for _ in range(3):
        stage.now += 1000
        stage.calls(session, "tool21")
    assert await stage.about(session, "files", "tool11", "tool12")
    assert stage.shown(session, catalog) == ["tool11", "tool12", "tool21"]


async def test_the_same_context_again_counts_only_if_its_confidence_band_changed(catalog):
    session = a_session()
    stage = started(session, catalog)
    assert await stage.about(session, "mail", "tool20", "tool21", confidence=0.4)
    before = stage.shown(session, catalog)
    assert not await stage.about(session, "mail", "tool28", "tool29", confidence=0.6)
    assert stage.shown(session, catalog) == before
    assert await stage.about(session, "mail", "tool28", "tool29", confidence=0.8)
    assert stage.shown(session, catalog) == ["tool28", "tool29"]
    assert stage.filtering.state(session).turn == 1


async def test_a_context_of_which_little_is_known_brings_the_first_list_back_if_that_pays(catalog):
    session = a_session()
    stage = started(session, catalog)
    assert await stage.about(session, "mail", "tool20", "tool21")
    stage.shown(session, catalog)
    assert await stage.about(session, "something else", "tool01", confidence=0.1)
    assert stage.shown(session, catalog) == ["tool02", "tool09"]


@pytest.mark.parametrize("mode", ["enforce", "shadow"])
async def test_a_shadow_notes_the_lists_that_a_client_would_have_been_told_to_ask_for(catalog, mode):
    """What a client that lists whenever it is told to is shown, and what is noted when none is told, are the same."""
    session, shown = a_session(), []
    stage = started(session, catalog, mode=mode)
    stage.filtering.when_foreshadowed(lambda _, selection: shown.append(list(selection.shown)))
    for text, tools in (("mail", ["tool20"]), ("mail", ["tool22"]), ("files", ["tool11", "tool12"])):
        announced = await stage.about(session, text, *tools)
        assert not (announced and mode == "shadow")
        if announced:
            shown.append(stage.shown(session, catalog))
    assert shown == [["tool20"], ["tool11", "tool12"]]
    assert stage.filtering.state(session).changes == 2


async def test_a_tool_that_an_upstream_adds_during_the_session_is_listed(catalog):
    session = a_session()
    stage = started(session, catalog)
    assert stage.shown(session, a_catalogue("unlocked", *ALL)) == ["unlocked", "tool02", "tool09"]


async def test_a_tool_that_an_upstream_takes_away_is_gone_from_the_list(catalog):
    session = a_session()
    stage = started(session, catalog)
    assert stage.shown(session, a_catalogue(*(name for name in ALL if name != "tool02"))) == ["tool09"]


async def test_planning_that_fails_shows_everything_and_is_logged_once(catalog, caplog):
    stage, session = Stage(), a_session()
    stage.use.error = ZeroDivisionError()
    for _ in range(3):
        listed = stage.filtering.compose(session, catalog)
        assert (listed.shown, listed.reason) == (tuple(ALL), "filtering failed")
    assert [record.getMessage() for record in caplog.records] == [
        "filtering failed; all that is allowed is shown, and this is logged once"
    ]


def test_what_is_denied_stays_denied_when_planning_fails(catalog):
    stage = Stage(denylist=["tool00"])
    stage.use.error = ZeroDivisionError()
    assert stage.shown(a_session(), catalog) == ALL[1:]


def test_states_are_forgotten_with_their_session(catalog):
    stage = Stage()
    sessions = [a_session() for _ in range(5)]
    for session in sessions:
        stage.shown(session, catalog)
        stage.calls(session, "tool01")
    stage.filtering.forget(sessions[0])
    assert stage.filtering.state(sessions[0]).shown is None
    assert stage.filtering.state(sessions[1]).shown is not None


@pytest.mark.parametrize(("matches", "added"), [(("tool20", "tool21", "tool22"), 2), (("tool02",), 0), ((), 0)])
async def test_a_library_gets_the_learned_list_with_what_matches_a_new_context(matches, added):
    stage, session, many = Stage(coverage=0.99, max_tools=4), a_session(), a_catalogue(count=100)
    stage.learned({"tool09": 0.9, "tool02": 0.5, "tool03": 0.4, "tool04": 0.3})
    before = stage.shown(session, many)
    stage.prediction.likes = ("tool50",)
    for _ in range(2):
        stage.prediction.finds(*matches)
        await stage.about(session, "mail", confidence=0.1)
        await stage.filtering.add_matches(session)
        assert set(stage.shown(session, many)) == {*["tool09", "tool02", "tool03", "tool04"][: 4 - added], *matches[:2]}
    assert len(before) == 4
