"""What each surface makes of a selection, and when a list is left alone."""

import pytest

from riglm.application.filtering.overrides import PAUSE_SECONDS
from riglm.application.filtering.service import PROMISED_SECONDS
from riglm.domain import jsonrpc
from riglm.domain.session import Era
from riglm.domain.surface import Surface
from riglm.domain.tool import read_catalogue
from tests.unit.application.scripted_prediction import Stage, a_catalogue, a_session, names_in

ALL = [f"tool{number:02}" for number in range(30)]
OWN = ["call_tool", "set_context", "mark_tool", "index_status"]
MARK = b'"_meta":{"anthropic/alwaysLoad":true}'


@pytest.fixture
def catalogue():
    return a_catalogue(count=30)


def test_the_surface_is_chosen_by_client_and_era_unless_it_is_configured():
    claude, modern, old = a_session("claude-code", Era.MODERN), a_session("x", Era.MODERN), a_session("x")
    assert [Stage().filtering.surface(each) for each in (claude, modern, old)] == [
        Surface.HINTS,
        Surface.STABLE,
        Surface.DYNAMIC,
    ]
    forced = Stage(surface="dynamic").filtering
    assert {forced.surface(each) for each in (claude, modern, old)} == {Surface.DYNAMIC}
    extended = Stage(clients={"x*": "full"}).filtering
    assert [extended.surface(each) for each in (claude, modern)] == [Surface.HINTS, Surface.FULL]


def test_a_stable_list_is_whole_with_riglms_tools_until_something_was_learned(catalogue):
    stage, session = Stage(), a_session("x", Era.MODERN)
    listed = stage.filtering.compose(session, catalogue)
    assert names_in(listed.raw) == [*ALL, "search_available_tools", *OWN]
    assert listed.selection.reason == "nothing was learned yet"
    assert stage.filtering.fresh_seconds(session) == 0.0


def test_a_stable_list_is_the_warm_set_in_the_catalogues_order(catalogue):
    stage, session = Stage(), a_session("x", Era.MODERN)
    stage.prediction.warm = ("tool09", "tool02", "gone")
    listed = stage.filtering.compose(session, catalogue)
    assert names_in(listed.raw) == ["search_available_tools", "tool02", "tool09", *OWN]
    assert (listed.selection.surface, listed.selection.predictor) == ("stable", "hybrid")


def test_a_warm_set_is_filled_up_to_the_least_number_of_tools(catalogue):
    stage = Stage(min_tools=4, pinned=["tool29"])
    stage.prediction.warm = ("tool09", "tool02")
    assert stage.shown(a_session("x", Era.MODERN), catalogue) == ["tool00", "tool01", "tool02", "tool09", "tool29"]


async def test_nothing_that_a_session_does_changes_a_stable_list(catalogue):
    stage, session = Stage(), a_session("x", Era.MODERN)
    stage.prediction.warm = ("tool09", "tool02")
    before = stage.filtering.compose(session, catalogue).raw
    assert not await stage.about(session, "mail", "tool20", "tool21")
    for turn in range(10):
        assert not stage.calls(session, "tool20", turn_key=str(turn))
        assert stage.filtering.compose(session, catalogue).raw == before
    assert stage.filtering.compose(a_session("y", Era.MODERN), catalogue).raw == before
    assert stage.filtering.state(session).changes == 0


@pytest.mark.parametrize(("epoch", "promised"), [(600, PROMISED_SECONDS), (1, 1.0)])
def test_a_stable_list_is_promised_for_the_same_short_time_at_every_request(catalogue, epoch, promised):
    stage, session = Stage(epoch=epoch), a_session("x", Era.MODERN)
    stage.prediction.warm = ("tool09",)
    stage.filtering.compose(session, catalogue)
    promises = set()
    for _ in range(100):
        promises.add(stage.filtering.fresh_seconds(session))
        stage.now += 1.37
    assert promises == {promised}


def test_a_list_is_promised_for_no_longer_than_an_override_takes_to_count():
    assert PROMISED_SECONDS <= PAUSE_SECONDS


async def test_the_warm_set_is_prepared_for_surfaces_that_have_one(catalogue):
    stage = Stage(max_tools=7, profile="work", denylist=["tool00"])
    for session in (a_session(), a_session("x", Era.MODERN), a_session("claude-code")):
        await stage.filtering.prepare(session, catalogue)
    assert stage.prediction.prepared == [(tuple(ALL[1:]), "work", 7)] * 2


def test_hints_leave_the_list_whole_and_mark_exactly_the_warm_set(catalogue):
    stage, session = Stage(), a_session("claude-code", Era.MODERN)
    stage.prediction.warm = ("tool09", "tool02")
    listed = stage.filtering.compose(session, catalogue)
    entries = jsonrpc.elements(listed.raw)
    assert names_in(listed.raw) == ALL
    assert [name for name, entry in zip(ALL, entries, strict=True) if MARK in bytes(entry)] == ["tool02", "tool09"]
    assert bytes(entries[0]) == bytes(catalogue.tools[0].raw)
    assert (listed.selection.hidden, listed.untouched) == ((), False)


def test_a_mark_keeps_what_the_upstream_says_in_meta():
    catalogue = read_catalogue(b'{"tools":[{"name":"a","_meta":{"x":1.0,"anthropic/alwaysLoad":false}},{"name":"b"}]}')
    stage = Stage()
    stage.prediction.warm = ("a",)
    raw = stage.filtering.compose(a_session("claude-code"), catalogue).raw
    assert raw == b'[{"name":"a","_meta":{"x":1.0,"anthropic/alwaysLoad":true}},{"name":"b"}]'


def test_hints_keep_entries_that_riglm_cannot_read_and_mark_a_name_once():
    catalogue = read_catalogue(b'{"tools":[5,{"name":"a"},{"x":1},{"name":"a","y":2},{"name":"b"},null]}')
    stage = Stage()
    stage.prediction.warm = ("a",)
    raw = stage.filtering.compose(a_session("claude-code"), catalogue).raw
    assert raw == b'[5,{"name":"a",%b},{"x":1},{"name":"a","y":2},{"name":"b"},null]' % MARK


def test_hints_mark_the_tools_of_a_small_catalogue_too_and_load_no_model_for_it():
    stage, session = Stage(passthrough_below={}), a_session("claude-code")
    stage.prediction.warm = ("tool02",)
    small = a_catalogue(count=5)
    entries = jsonrpc.elements(stage.filtering.compose(session, small).raw)
    assert [MARK in bytes(entry) for entry in entries] == [False, False, True, False, False]
    assert stage.prediction.known == []
    assert stage.filtering.fresh_seconds(session) == PROMISED_SECONDS


def test_hints_without_anything_learned_keep_every_byte_of_the_entries_and_are_for_one_principal(catalogue):
    listed = Stage().filtering.compose(a_session("claude-code"), catalogue)
    assert jsonrpc.elements(listed.raw) == [tool.raw for tool in catalogue.tools]
    assert not listed.untouched


@pytest.mark.parametrize(
    ("rules", "client"),
    [
        ({"surface": "full"}, ""),
        ({"mode": "shadow"}, ""),
        ({"mode": "shadow"}, "claude-code"),
        ({"pinned": ["*"]}, ""),
    ],
)
def test_there_are_no_tools_of_riglms_where_nothing_is_hidden(catalogue, rules, client):
    stage, session = Stage(**rules), a_session(client)
    assert stage.filtering.compose(session, catalogue).untouched
    assert stage.filtering.offered(session) == ()
    assert not stage.meta_tools.owns(session, "call_tool")


def test_there_are_no_tools_of_riglms_beside_hints(catalogue):
    stage, session = Stage(), a_session("claude-code")
    assert names_in(stage.filtering.compose(session, catalogue).raw) == ALL
    assert stage.filtering.offered(session) == ()


@pytest.mark.parametrize(
    ("count", "size", "untouched"), [(20, 100, True), (21, 100, False), (20, 2000, False), (1, 100, True)]
)
def test_a_small_catalogue_passes_untouched(count, size, untouched):
    stage = Stage(passthrough_below={})
    listed = stage.filtering.compose(a_session(), a_catalogue(count=count, size=size))
    assert listed.untouched is untouched
    assert ("call_tool" in names_in(listed.raw)) is not untouched


def test_prediction_need_not_know_what_is_passed_whole(catalogue):
    small, full, large = Stage(passthrough_below={}), Stage(surface="full"), Stage()
    small.shown(a_session(), a_catalogue(count=20, size=100))
    full.shown(a_session(), catalogue)
    large.shown(a_session(), catalogue)
    assert [stage.prediction.known for stage in (small, full, large)] == [[], [], [catalogue]]


def test_a_list_that_riglm_does_not_change_stays_fresh_for_as_long_as_the_upstream_says(catalogue):
    session = a_session("x", Era.MODERN)
    for stage in (Stage(surface="full"), Stage(pinned=["*"])):
        stage.shown(session, catalogue)
        assert stage.filtering.fresh_seconds(session) > 86_400 * 300


def test_changes_are_announced_where_lists_follow_a_session():
    dynamic, modern = a_session(), a_session("x", Era.MODERN)
    assert Stage().filtering.announces(dynamic)
    assert not Stage().filtering.announces(modern)
    assert not Stage(mode="shadow").filtering.announces(dynamic)
    assert Stage(surface="dynamic").filtering.announces(modern)


async def test_a_dynamic_list_is_not_promised_to_stay(catalogue):
    stage, session = Stage(surface="dynamic"), a_session("x", Era.MODERN)
    assert stage.filtering.fresh_seconds(session) == 0.0
    stage.shown(session, catalogue)
    assert stage.filtering.fresh_seconds(session) == 0.0


def test_a_small_catalogue_still_lacks_what_is_denied():
    stage = Stage(passthrough_below={}, denylist=["B"])
    listed = stage.filtering.compose(a_session(), a_catalogue("a", "b"))
    assert (names_in(listed.raw), listed.untouched) == (["a"], False)
    assert (listed.selection.shown, listed.selection.hidden) == (("a",), ())


async def test_shadow_mode_shows_everything_and_records_what_it_would_have_hidden(catalogue):
    stage, session = Stage(mode="shadow"), a_session()
    stage.prediction.likes = ("tool04", "tool05", "tool06")
    stage.shown(session, catalogue)
    assert not stage.calls(session, "tool04", turn_key="one")
    assert not stage.calls(session, "tool04", turn_key="two")
    listed = stage.filtering.compose(session, catalogue)
    assert listed.untouched
    assert names_in(listed.raw) == ALL
    assert (listed.selection.shown, len(listed.selection.hidden)) == (("tool04", "tool05", "tool06"), 27)
    assert (listed.selection.mode, listed.selection.tokens_own) == ("shadow", 0)
    assert stage.filtering.listed(session) == frozenset(ALL)


@pytest.mark.parametrize("mode", ["enforce", "shadow"])
def test_a_shadow_notes_the_lists_that_a_client_would_have_been_told_to_ask_for(catalogue, mode):
    """What a client that asks whenever it is told to is shown, and what is noted when none is told, are the same."""
    stage, session, shown = Stage(mode=mode), a_session(), []
    stage.filtering.when_foreshadowed(lambda _, selection: shown.append(selection.shown))
    shown.append(tuple(stage.shown(session, catalogue)))
    stage.prediction.likes = ("tool04", "tool05", "tool06")
    for turn, tool in (("one", "tool04"), ("one", "tool20"), ("two", "tool05"), ("three", "tool07")):
        if stage.calls(session, tool, turn_key=turn):
            shown.append(tuple(stage.shown(session, catalogue)))
    assert shown == [tuple(ALL), ("tool04", "tool05", "tool20")]
    assert stage.filtering.state(session).changes == 1


def test_shadow_mode_denies_what_policy_denies(catalogue):
    stage, session = Stage(mode="shadow", denylist=["tool00"]), a_session()
    assert names_in(stage.filtering.compose(session, catalogue).raw) == ALL[1:]
    assert stage.filtering.denial(session, "TOOL00") == "Unknown tool: TOOL00"


def test_lists_without_prediction_hide_nothing_but_what_is_denied(catalogue):
    stage, session = Stage(strategy="denylist", denylist=["tool1*"]), a_session()
    listed = stage.filtering.compose(session, catalogue)
    assert names_in(listed.raw) == [name for name in ALL if not name.startswith("tool1")]
    assert (stage.filtering.offered(session), listed.selection.hidden) == ((), ())
    allowed = Stage(strategy="allowlist", allowlist=["tool0?"])
    assert allowed.shown(session, catalogue) == ALL[:10]


def test_a_filter_without_prediction_passes_everything(catalogue):
    stage = Stage(predicted=False)
    assert stage.filtering.compose(a_session(), catalogue).untouched


async def test_tokens_of_a_list_are_counted(catalogue):
    stage, session = Stage(), a_session()
    stage.shown(session, catalogue)
    await stage.about(session, "mail", "tool01", "tool02", "tool03")
    selection = stage.filtering.compose(session, catalogue).selection
    each = len(bytes(catalogue.tools[0].raw)) / 4
    assert selection.tokens_own > 0
    assert selection.tokens_shown - selection.tokens_own == pytest.approx(3 * each, abs=1)
    assert selection.tokens_hidden == pytest.approx(27 * each, abs=1)


def test_a_tool_with_the_name_of_one_of_riglms_gives_way_and_this_is_said_once(caplog):
    stage, session = Stage(), a_session()
    catalogue = a_catalogue("a", "call_tool", "b")
    for _ in range(2):
        listed = stage.filtering.compose(session, catalogue)
    assert names_in(listed.raw) == ["a", "b", "search_available_tools", *OWN]
    assert listed.selection.hidden == ("call_tool",)
    assert [record.getMessage() for record in caplog.records] == [
        "an upstream's tool has the name of one of riglm's: it is reached by call_tool: call_tool"
    ]


def test_a_tool_of_riglms_that_is_switched_off_leaves_its_name_to_the_upstream():
    stage, session = Stage(meta_tools={"call_tool": False}), a_session()
    listed = stage.filtering.compose(session, a_catalogue("a", "call_tool"))
    assert names_in(listed.raw) == ["a", "call_tool", "search_available_tools", *OWN[1:]]
    assert not stage.meta_tools.owns(session, "call_tool")
