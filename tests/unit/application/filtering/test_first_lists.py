"""The first list of a session: short from the first session on, and never dearer than the whole catalog."""

from dataclasses import replace

import pytest

from riglm.domain import jsonrpc
from riglm.domain.exposure import Surface
from riglm.domain.list_plan import Prices
from riglm.domain.session import ProtocolEra
from riglm.domain.tool import read_catalog
from tests.unit.application.scripted_prediction import Stage, a_catalogue, a_session, names_in

ALL = [f"tool{number:02}" for number in range(30)]
SURFACES = [("", ProtocolEra.HANDSHAKE), ("x", ProtocolEra.MODERN)]


@pytest.fixture
def catalog():
    return a_catalogue(count=30)


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


def test_the_first_list_needs_no_context_call_or_model(catalog):
    stage = Stage()
    stage.learned({"tool09": 0.9})
    assert stage.shown(a_session(), catalog) == ["tool09"]
    assert (stage.prediction.queries, stage.prediction.training_queue) == ([], [])


def test_a_large_definition_needs_more_use_to_be_listed():
    sizes = {f"{kind}{number}": size for kind, size in (("small", 400), ("large", 8_000)) for number in range(20)}
    entries = [b'{"name":"%b","description":"%b"}' % (name.encode(), b"x" * size) for name, size in sizes.items()]
    catalog = read_catalog(b'{"tools":[%b]}' % b",".join(entries))
    stage = Stage()
    stage.learned({"small1": 0.3, "large1": 0.3, "large2": 1.0}, sessions=10)
    assert stage.shown(a_session(), catalog) == ["small1", "large2"]


def test_the_prices_decide_what_is_listed(catalog):
    prices = {"output": 0.0, "cached_input": 0.0, "cache_write": 5.0}
    reliable, unreliable = (Stage(prices=Prices(search_reliability=share, **prices)) for share in (1.0, 0.9))
    for stage in (reliable, unreliable):
        stage.learned({"tool09": 1.0, "tool02": 0.2}, sessions=10)
    assert reliable.shown(a_session(), catalog) == ["tool09"]
    assert unreliable.shown(a_session(), catalog) == ["tool02", "tool09"]


@pytest.mark.parametrize(("sessions", "shown"), [(10, ["tool09"]), (11, ["tool02", "tool03", "tool09"])])
def test_from_the_eleventh_session_on_a_list_is_filled_with_likely_tools_that_do_not_pay(sessions, shown):
    """Searches have no price here but their results, so only a tool that every session needs pays for itself."""
    stage = Stage(prices=Prices(search_reliability=1.0, output=0.0, cached_input=0.0, cache_write=1.0))
    stage.learned({"tool09": 1.0, "tool02": 0.4, "tool03": 0.35, "tool04": 0.1, "tool05": 0.01}, sessions=sessions)
    assert stage.shown(a_session(), a_catalogue(count=100, size=4_000)) == shown


@pytest.mark.parametrize(
    ("rules", "count"), [({"max_tools": 4}, 4), ({"min_tools": 12}, 12), ({"max_tools": 4, "pinned": ["tool29"]}, 5)]
)
def test_a_list_stays_within_its_bounds_and_pinned_tools_come_on_top(rules, count):
    stage = Stage(**rules)
    stage.learned(dict.fromkeys(ALL[:9], 0.9))
    assert len(stage.shown(a_session(), a_catalogue(count=200))) == count


def test_coverage_lists_the_fewest_tools_that_hold_a_share_of_the_use(catalog):
    stage = Stage(coverage=0.75)
    stage.learned({"tool01": 0.5, "tool02": 0.3, "tool03": 0.1, "tool04": 0.1})
    assert stage.shown(a_session(), catalog) == ["tool01", "tool02"]


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
def test_before_anything_was_learned_a_small_catalog_passes_unchanged(client, era):
    stage, session, catalog = Stage(), a_session(client, era), a_catalogue(count=20)
    stage.prediction.likes = ("tool05",)
    listed = stage.filtering.compose(session, catalog)
    assert (listed.shown, listed.hidden) == (tuple(ALL[:20]), ())
    assert jsonrpc.elements(listed.raw) == [tool.raw for tool in catalog.tools]
    assert listed.is_passthrough is (stage.filtering.surface(session) is Surface.DYNAMIC)
    assert (listed.reason, listed.tokens_own) == ("hiding tools does not pay", 0)
    assert stage.filtering.offered(session) == ()
    assert not stage.filtering.hides(session)


@pytest.mark.parametrize("uses", [dict.fromkeys(ALL, 0.9), dict.fromkeys(ALL, 0.2)])
def test_a_catalog_of_which_nearly_all_is_used_passes_unchanged(catalog, uses):
    stage = Stage(max_tools=30)
    stage.learned(uses)
    assert stage.filtering.compose(a_session(), catalog).is_passthrough


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


def test_each_recorded_session_moves_the_need_from_the_prior_to_what_was_recorded():
    catalog = a_catalogue("read_file", "web_search", *ALL, *(f"t{n}" for n in range(200)))
    before, lists = None, []
    for sessions in (0, 1, 2, 4, 8, 16, 64, 10**9):
        stage = Stage(min_tools=0)
        stage.learned(dict.fromkeys(ALL[:4], 0.9), sessions=sessions)
        session = a_session()
        lists.append(set(stage.shown(session, catalog)))
        probabilities = stage.filtering.need(session).probabilities
        assert before is None or all(probabilities[tool] > before[tool] for tool in ALL[:4])
        assert before is None or probabilities["read_file"] < before["read_file"]
        before = probabilities
    assert lists == [{"read_file"}, *[set(ALL[:4])] * 7]


@pytest.mark.parametrize("surface", ["dynamic", "stable", "hints"])
def test_the_record_names_the_strategy_that_estimated_the_use(catalog, surface):
    stage = Stage(surface=surface)
    stage.learned({"tool09": 0.9}, predictor="frequency")
    assert stage.filtering.compose(a_session(), catalog).predictor == "frequency"
    stage.learned({}, sessions=3)
    assert stage.filtering.compose(a_session("another"), catalog).predictor == ""


def test_a_cold_list_prefers_everyday_tools_to_those_that_come_first():
    catalog = a_catalogue(*(f"obscure{number}" for number in range(300)), "read_file", "web_search")
    assert Stage(min_tools=2).shown(a_session(), catalog) == ["read_file", "web_search"]


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


def test_what_was_learned_meanwhile_counts_for_all_modern_sessions_at_once(catalog):
    stage, under_way = Stage(), a_session("x", ProtocolEra.MODERN)
    stage.learned({"tool09": 0.9})
    assert stage.shown(under_way, catalog) == ["tool09"]
    stage.learned({"tool04": 0.9}, sessions=20)
    assert stage.shown(under_way, catalog) == stage.shown(a_session("y", ProtocolEra.MODERN), catalog) == ["tool04"]


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


@pytest.mark.parametrize("stage", [Stage(surface="full"), Stage(predicted=False), Stage(strategy="none")])
def test_lists_that_nothing_is_chosen_for_wait_for_no_recorded_use(stage):
    assert not stage.filtering.needs_usage(a_session())


async def test_recorded_use_that_cannot_be_read_leaves_a_cold_start(caplog):
    stage, session, catalog = Stage(), a_session(), a_catalogue("read_file", *ALL)
    stage.use.error = OSError("the disk")
    await stage.filtering.prepare(session, catalog)
    stage.use.error = None
    listed = stage.filtering.compose(session, catalog)
    assert (listed.shown, listed.reason) == (("read_file",), "nothing was learned yet")
    assert len(caplog.records) == 1
