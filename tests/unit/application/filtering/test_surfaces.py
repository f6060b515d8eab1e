"""How each surface shows a selection, and when a list is passed through."""

import pytest

from riglm.application.filtering.filtering_service import PROMISED_SECONDS
from riglm.application.store_follower import FOLLOW_SECONDS
from riglm.domain import jsonrpc
from riglm.domain.client_support import NO_TOOL_SEARCH
from riglm.domain.exposure import Surface
from riglm.domain.session import ProtocolEra
from riglm.domain.tool import read_catalog
from tests.unit.application.scripted_prediction import ALL, Stage, a_catalogue, a_session, names_in

MARK = b'"_meta":{"anthropic/alwaysLoad":true}'
USES = {"tool09": 0.9, "tool02": 0.5}


def learned(**rules):
    """A stage where tool09 and tool02 are worth listing."""
    stage = Stage(**rules)
    stage.learned(USES)
    return stage


def test_claude_code_without_its_search_gets_a_short_list_that_is_loaded_if_it_searches_after_all(catalog):
    session = a_session("claude-code", ProtocolEra.MODERN)
    session.metadata[NO_TOOL_SEARCH] = "it is off"
    other = a_session("x", ProtocolEra.MODERN)
    stage = learned()
    listed = stage.filtering.compose(session, catalog)
    assert listed.surface is Surface.STABLE
    assert listed.shown == stage.filtering.compose(other, catalog).shown
    entries = jsonrpc.elements(listed.raw)
    assert names_in(listed.raw) == ["search_available_tools", *sorted(USES), "call_tool"]
    assert all(MARK in bytes(entry) for entry in entries)
    assert MARK not in stage.filtering.compose(other, catalog).raw


@pytest.mark.parametrize(("client", "most"), [("cursor-vscode", 40), ("Visual Studio Code", 128)])
@pytest.mark.parametrize("size", [4, 400])
@pytest.mark.parametrize("is_learned", [True, False])
def test_a_client_gets_no_more_tools_than_it_takes_and_the_likeliest_of_them(client, most, size, is_learned):
    stage = Stage(pinned=["tool139"])
    if is_learned:
        stage.learned({f"tool{number:02}": 0.9 for number in range(100, 105)})
    many = a_catalogue(count=140, size=size)
    names = names_in(stage.filtering.compose(a_session(client), many).raw)
    assert len(names) <= most
    assert "tool139" in names
    assert "search_available_tools" in names
    if is_learned:
        assert {f"tool{number:02}" for number in range(100, 105)} <= set(names)
    whole = names_in(stage.filtering.compose(a_session(client), a_catalogue(count=most, size=4)).raw)
    assert len(whole) <= most


@pytest.mark.parametrize(
    "rules",
    [
        {"pinned": ["search_available_tools", "call_tool", "set_context"]},
        {"surface": "dynamic", "min_tools": 150, "max_tools": 150},
    ],
)
async def test_neither_pinned_meta_tools_nor_a_context_exceed_what_a_client_takes(rules):
    stage, session = Stage(**rules), a_session("cursor-vscode")
    many = a_catalogue(count=39 if "pinned" in rules else 140, size=4)
    stage.filtering.compose(session, many)
    await stage.about(session, "mail", "tool20", "tool21")
    names = names_in(stage.filtering.compose(session, many).raw)
    assert len(names) <= 40
    assert "search_available_tools" in names


@pytest.mark.parametrize(("period", "promised"), [(600, PROMISED_SECONDS), (1, 1.0)])
def test_a_stable_list_is_promised_for_the_same_short_time_at_every_request(catalog, period, promised):
    stage, session = learned(period=period), a_session("x", ProtocolEra.MODERN)
    stage.filtering.compose(session, catalog)
    promises = set()
    for _ in range(100):
        promises.add(stage.filtering.fresh_seconds(session))
        stage.now += 1.37
    assert promises == {promised}


def test_a_list_is_promised_for_no_longer_than_an_override_takes_to_count():
    assert PROMISED_SECONDS <= FOLLOW_SECONDS


def test_hints_leave_the_list_whole_and_mark_the_tools_whose_listing_pays(catalog):
    stage, session = learned(pinned=["tool20"]), a_session("claude-code", ProtocolEra.MODERN)
    listed = stage.filtering.compose(session, catalog)
    entries = jsonrpc.elements(listed.raw)
    assert names_in(listed.raw) == ALL
    marked = [name for name, entry in zip(ALL, entries, strict=True) if MARK in bytes(entry)]
    assert marked == ["tool02", "tool09", "tool20"]
    assert bytes(entries[0]) == bytes(catalog.tools[0].raw)
    assert list(listed.shown) == marked
    assert set(listed.hidden) == set(ALL) - set(marked)
    assert (listed.is_passthrough, stage.filtering.offered(session)) == (False, ())


def test_hints_keep_entries_that_riglm_cannot_read_and_mark_a_name_once():
    catalog = read_catalog(b'{"tools":[5,{"name":"a"},{"x":1},{"name":"a","y":2},{"name":"b"},null]}')
    stage = Stage()
    stage.learned({"a": 0.9})
    raw = stage.filtering.compose(a_session("claude-code"), catalog).raw
    assert raw == b'[5,{"name":"a",%b},{"x":1},{"name":"a","y":2},{"name":"b"},null]' % MARK


def test_hints_without_anything_learned_keep_every_byte_of_the_entries_and_are_for_one_principal(catalog):
    stage, session = Stage(), a_session("claude-code")
    listed = stage.filtering.compose(session, catalog)
    assert jsonrpc.elements(listed.raw) == [tool.raw for tool in catalog.tools]
    assert not listed.is_passthrough
    assert stage.filtering.fresh_seconds(session) == PROMISED_SECONDS


@pytest.mark.parametrize("surface", ["dynamic", "stable", "full", "hints"])
@pytest.mark.parametrize("mode", ["enforce", "shadow"])
def test_a_meta_tool_is_answered_though_not_listed_unless_an_upstream_tool_has_its_name(surface, mode):
    stage, session = learned(surface=surface, mode=mode, pinned=["*"]), a_session()
    stage.filtering.compose(session, a_catalogue("call_tool", "other"))
    answered = [name for name in ("set_context", "call_tool") if stage.meta_tools.owns(session, name)]
    assert answered == (["set_context"] if mode == "enforce" and surface in ("dynamic", "stable") else [])


def test_a_list_on_the_surface_full_stays_fresh_for_as_long_as_the_upstream_says(catalog):
    stage, session = Stage(surface="full"), a_session("x", ProtocolEra.MODERN)
    stage.shown(session, catalog)
    assert stage.filtering.fresh_seconds(session) > 86_400 * 300


def test_changes_are_announced_where_lists_follow_a_session_or_a_warm_set():
    dynamic, modern = a_session(), a_session("x", ProtocolEra.MODERN)
    for session in (dynamic, modern):
        assert Stage().filtering.announces(session)
        assert not Stage(mode="shadow").filtering.announces(session)
        assert not Stage(surface="full").filtering.announces(session)
    assert not Stage(surface="stable").filtering.announces(dynamic)


def test_lists_without_prediction_hide_nothing_but_what_is_denied(catalog):
    stage, session = learned(strategy="denylist", denylist=["tool1*"]), a_session()
    listed = stage.filtering.compose(session, catalog)
    assert names_in(listed.raw) == [name for name in ALL if not name.startswith("tool1")]
    assert (stage.filtering.offered(session), listed.hidden) == ((), ())
    allowed = learned(strategy="allowlist", allowlist=["tool0?"])
    assert allowed.shown(session, catalog) == ALL[:10]


def test_a_tool_with_the_name_of_a_meta_tool_gives_way():
    stage, session = Stage(), a_session()
    stage.learned({"tool01": 0.9, "call_tool": 0.9})
    catalog = a_catalogue("call_tool", *ALL)
    listed = stage.filtering.compose(session, catalog)
    assert names_in(listed.raw) == ["search_available_tools", "tool01", "call_tool"]
    assert "call_tool" in listed.hidden


def test_a_tool_with_the_name_of_a_meta_tool_keeps_it_where_nothing_is_hidden():
    stage, session = Stage(), a_session()
    assert stage.filtering.compose(session, a_catalogue("a", "call_tool")).is_passthrough
    assert not stage.meta_tools.owns(session, "call_tool")
