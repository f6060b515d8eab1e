"""The first list of a session: short from the first session on, and never dearer than the whole catalog."""

from dataclasses import replace

import pytest

from riglm.domain import jsonrpc
from riglm.domain.session import ProtocolEra
from tests.unit.application.scripted_prediction import ALL, Stage, a_catalogue, a_session, names_in

SURFACES = [("", ProtocolEra.HANDSHAKE), ("x", ProtocolEra.MODERN)]


def servers(count, each):
    """Return a catalog of so many servers, one after the other, and the function that tells them apart."""
    names = [f"s{server}__do{tool:03}" for server in range(count) for tool in range(each)]
    return a_catalogue(*names), lambda name: tuple(name.split("__"))


@pytest.mark.parametrize(("client", "era"), SURFACES)
def test_the_first_list_holds_the_tools_whose_listing_pays(catalog, client, era):
    stage = Stage()
    stage.learned({"tool09": 0.9, "tool02": 0.5, "tool03": 0.001, "gone": 0.9})
    listed = stage.filtering.compose(a_session(client, era), catalog)
    assert listed.shown == ("tool02", "tool09")
    assert listed.hidden == tuple(name for name in ALL if name not in listed.shown)
    assert (listed.predictor, listed.reason) == ("hybrid", "recorded use")


@pytest.mark.parametrize(
    ("rules", "count"), [({"max_tools": 4}, 4), ({"min_tools": 12}, 12), ({"max_tools": 4, "pinned": ["tool29"]}, 5)]
)
def test_a_list_stays_within_its_bounds_and_pinned_tools_come_on_top(rules, count):
    stage = Stage(**rules)
    stage.learned(dict.fromkeys(ALL[:9], 0.9))
    assert len(stage.shown(a_session(), a_catalogue(count=200))) == count


def test_a_short_list_keeps_the_order_and_the_bytes_of_the_catalog_and_has_the_search_first(catalog):
    stage = Stage()
    stage.learned({"tool09": 0.9, "tool03": 0.5, "tool07": 0.7})
    raw = stage.filtering.compose(a_session(), catalog).raw
    assert names_in(raw) == ["search_available_tools", "tool03", "tool07", "tool09", "call_tool"]
    entries = [bytes(entry) for entry in jsonrpc.elements(raw)]
    assert entries[1:4] == [bytes(catalog.by_name[name].raw) for name in ("tool03", "tool07", "tool09")]


@pytest.mark.parametrize(("others", "is_listed"), [(0.5, False), (8.0, True)])
def test_set_context_is_listed_where_it_can_avoid_enough_searches_and_answers_anyway(others, is_listed):
    stage, session, large = Stage(), a_session(), a_catalogue(count=300)
    stage.learned({"tool09": 0.9, "tool03": 0.5}, others=others)
    assert ("set_context" in names_in(stage.filtering.compose(session, large).raw)) is is_listed
    assert stage.meta_tools.owns(session, "set_context")


@pytest.mark.parametrize(("client", "era"), SURFACES)
@pytest.mark.parametrize("limit", [1, 7, 50])
def test_before_anything_was_learned_a_large_catalog_is_a_search_and_a_few_tools(client, era, limit):
    stage, session = Stage(min_tools=0, cold_start_limit=limit), a_session(client, era)
    catalog = a_catalogue(*(f"read_file_{number}" for number in range(100)), *(f"other{n}" for n in range(300)))
    listed = stage.filtering.compose(session, catalog)
    names = names_in(listed.raw)
    assert names[0] == "search_available_tools"
    assert len(listed.shown) <= limit
    assert (listed.reason, listed.predictor) == ("nothing was learned yet", "")
    assert len(listed.shown) + len(listed.hidden) == 400


@pytest.mark.parametrize(
    ("rules", "count"),
    [
        ({}, 3),
        ({"max_tools": 2}, 2),
        ({"cold_start_limit": 1}, 1),
        ({"max_tools": 2, "cold_start_limit": 3}, 2),
        ({"max_tools": 2, "cold_start_limit": 1, "pinned": ["t299"]}, 2),
    ],
)
def test_a_cold_list_is_capped_by_max_tools_and_cold_start_limit(rules, count):
    names = ["read_file", "list_directory", "write_file", "web_search", "fetch", "send_email"]
    shown = Stage(min_tools=0, **rules).shown(a_session(), a_catalogue(*names, *(f"t{n}" for n in range(300))))
    assert len(shown) == count
    assert set(shown) <= {*names, *rules.get("pinned", ())}


@pytest.mark.parametrize("surface", ["dynamic", "stable", "hints"])
def test_the_record_names_the_strategy_that_estimated_the_use(catalog, surface):
    stage = Stage(surface=surface)
    stage.learned({"tool09": 0.9}, predictor="frequency")
    assert stage.filtering.compose(a_session(), catalog).predictor == "frequency"
    stage.learned({}, sessions=3)
    assert stage.filtering.compose(a_session("another"), catalog).predictor == ""


def test_a_cold_list_takes_tools_of_each_server_in_turn():
    catalog, owner = servers(4, 60)
    stage = Stage(min_tools=6, owner=owner)
    assert stage.shown(a_session(), catalog) == [
        "s0__do000",
        "s0__do001",
        "s1__do000",
        "s1__do001",
        "s2__do000",
        "s3__do000",
    ]


def test_what_was_learned_meanwhile_counts_for_the_next_session_of_the_handshake_era(catalog):
    stage, under_way = Stage(), a_session()
    before = stage.filtering.compose(under_way, catalog)
    stage.learned({"tool09": 0.9})
    assert stage.filtering.compose(under_way, catalog) == before
    assert stage.shown(a_session(), catalog) == ["tool09"]


def test_a_list_of_an_incomplete_catalog_does_not_bind_the_complete_one(catalog):
    stage, session = Stage(), a_session()
    stage.learned({"tool29": 0.9})
    part = replace(a_catalogue(*ALL[:10]), missing=("slow",))
    assert "search_available_tools" in names_in(stage.filtering.compose(session, part).raw)
    assert stage.shown(session, catalog) == ["tool29"]


async def test_recorded_use_is_read_before_the_first_list_of_a_session_and_not_again(catalog):
    stage, session = Stage(profile="work"), a_session()
    assert stage.filtering.needs_usage(session)
    await stage.filtering.prepare(session, catalog)
    stage.shown(session, catalog)
    assert not stage.filtering.needs_usage(session)
    await stage.filtering.prepare(session, catalog)
    assert stage.use.refreshed == [session]


async def test_recorded_use_that_cannot_be_read_leaves_a_cold_start(caplog):
    stage, session, catalog = Stage(), a_session(), a_catalogue("read_file", *ALL)
    stage.use.error = OSError("the disk")
    await stage.filtering.prepare(session, catalog)
    stage.use.error = None
    listed = stage.filtering.compose(session, catalog)
    assert (listed.shown, listed.reason) == (("read_file",), "nothing was learned yet")
    assert len(caplog.records) == 1
