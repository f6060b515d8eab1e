"""What recorded lists and calls come to."""

from dataclasses import replace

from riglm.application.reports.figures import cost_fields, hit_figures, read_figures, tool_statistics
from riglm.domain.invocation import OWN_UPSTREAM, DiscoveryMethod, ErrorKind
from riglm.domain.list_plan import Prices
from riglm.domain.session import ClientInfo, IdentificationMethod, uuid7
from tests.records import a_session, a_token_usage, an_exposure, an_invocation
from tests.stores.memory import InMemoryAnalytics


def read(*records, mode="shadow"):
    with InMemoryAnalytics() as store:
        store.record_many(records)
        return read_figures(store, Prices()).of(mode)


def read_stored(*records):
    with InMemoryAnalytics() as store:
        store.record_many(records)
        return read_figures(store, Prices())


def a_list(session, *shown, hidden=(), at, **known):
    known = {"mode": "shadow", "surface": "dynamic", **known}
    tokens = {"tokens_shown": 100 * len(shown), "tokens_hidden": 100 * len(hidden)}
    return an_exposure(session, *shown, hidden=hidden, timestamp=at, **tokens, **known)


def called(session, tool, at, found=DiscoveryMethod.LISTED):
    return an_invocation(session, tool, timestamp=at, found=found)


def test_hit_rates_count_only_lists_that_hid_something():
    session = a_session(started_at=10.0)
    found = read(
        session,
        a_list(session, "a", "b", at=10.0),
        called(session, "a", 11.0),
        a_list(session, "a", hidden=("b",), at=12.0),
        called(session, "a", 13.0),
        called(session, "b", 14.0),
    )
    assert [(use.tool, use.is_hit) for use in found.judged] == [("a", True), ("b", False)]


def test_a_session_is_priced_in_the_order_in_which_things_happened():
    session, other = a_session(started_at=10.0), a_session(started_at=20.0)
    short = {"hidden": ("b", "c"), "mode": "enforce"}
    found = read(
        session,
        a_list(session, "a", at=10.0, **short),
        a_list(session, "b", at=11.0, mode="enforce", surface="search"),
        called(session, "b", 12.0, DiscoveryMethod.SEARCHED),
        other,
        a_list(other, "a", at=20.0, **{**short, "mode": "shadow"}),
        called(other, "a", 21.0),
        mode="enforce",
    )
    [priced] = found.costs
    assert (priced.session, priced.cost.riglm_requests) == (session.id, 3)
    first = 1.25 * (100 + 6_000) + 400
    call = 0.1 * 6_100 + 1.25 * (120 + 1.2 * 100) + 400
    assert found.cost.riglm == first + call + 0.1 * 6_340 + 1.25 * 450 + 400
    assert cost_fields(found.cost) == {"sessions": 1, "price": None, "price_of_search": None}
    twice = found.cost + found.cost
    assert cost_fields(twice)["price"] == round(twice.price, 3)


def test_with_preload_hints_the_tools_without_one_are_missed_and_no_search_of_riglm_found_them():
    session = a_session(started_at=10.0)
    found = read(
        session,
        a_list(session, "a", hidden=("b", "c"), at=10.0, mode="enforce", surface="hints"),
        called(session, "a", 11.0),
        called(session, "b", 12.0),
        mode="enforce",
    )
    assert [(use.is_hit, use.found.value) for use in found.judged] == [(True, "listed"), (False, "listed")]
    assert hit_figures(found.judged) == {"hits": 1, "missed": 1, "found_by_search": 0}
    assert found.lists[0].tokens.hidden == 0  # the client would defer them without riglm too
    assert found.cost.no_proxy == found.cost.host_search > found.cost.riglm


def test_the_latest_sessions_with_so_many_calls_count_and_one_at_least():
    sessions = [a_session(started_at=10.0 * at, tools_available=("a",)) for at in range(1, 4)]
    calls = [called(each, "a", each.started_at + at) for each in sessions for at in range(3)]
    imported = a_session(started_at=99.0, method=IdentificationMethod.TRANSCRIPT)
    with InMemoryAnalytics() as store:
        store.record_many([*sessions, *calls, imported, called(imported, "a", 99.0)])
        counts = [len(store.list_proxied_sessions(10, max_calls=most)) for most in (9, 8, 6, 1)]
    assert counts == [3, 2, 2, 1]


def test_sessions_are_priced_by_the_token_usage_of_their_client():
    session = a_session(started_at=10.0, client=ClientInfo(name="cursor"))
    other = a_session(started_at=10.0, client=ClientInfo(name="zed"))
    used = a_token_usage(
        started_at=5.0, requests=3, calls=1, uncached=0, written=12_300, first_prompt=10_300, cached=21_600, output=300
    )
    later = replace(used, id=uuid7(), started_at=11.0)
    with InMemoryAnalytics() as store:
        for each in (session, other):
            store.record_many(
                [each, a_list(each, "a", hidden=("b", "c"), at=10.0, mode="enforce"), called(each, "a", 11.0)]
            )
        store.record_many([used, later])
        found = read_figures(store, Prices())
    [bill] = found.bills
    assert [(usage.id, tokens) for usage, tokens in bill.sessions] == [(later.id, 100), (used.id, 300)]
    assert (bill.sizes.prompt_tokens, bill.sizes.output_tokens, bill.sizes.own_requests) == (10_100, 100, 1)
    costs = {each.session: each for each in found.costs}
    assert costs[session.id].cost.riglm_requests == 3
    assert costs[other.id].cost.riglm_requests == 2
    agent = costs[other.id].as_coding_agent
    assert agent.riglm == 1.25 * 20_100 + 400 + 0.1 * 20_100 + 1.25 * 2_000 + 400
    assert found.of("enforce").bills == found.bills
    assert found.cost_as_coding_agent.riglm == 2 * agent.riglm


def test_a_client_that_defers_tools_sends_the_list_of_its_search():
    session = a_session(started_at=10.0, client=ClientInfo(name="cursor"))
    with InMemoryAnalytics() as store:
        store.record_many([session, a_list(session, "a", at=10.0, mode="enforce", surface="hints")])
        store.record_many([a_token_usage(started_at=5.0)])
        [bill] = read_figures(store, Prices()).bills
    assert [tokens for _, tokens in bill.sessions] == [300]


def test_imported_sessions_meta_tools_refused_calls_and_unknown_names_are_no_use_of_a_tool():
    session, imported = a_session(), a_session(method=IdentificationMethod.TRANSCRIPT)
    failed = {"success": False, "error_kind": ErrorKind.PROTOCOL}
    found = read_stored(
        session,
        imported,
        an_exposure(session, "listed", "refused"),
        an_invocation(session, "listed"),
        an_invocation(session, "refused", upstream="", **failed),
        an_invocation(session, "unknown", **failed),
        an_invocation(session, "call_tool", upstream=OWN_UPSTREAM),
        an_invocation(imported, "imported"),
    )
    assert [(each.tool, each.invocations) for each in tool_statistics(found)] == [("listed", 1), ("refused", 0)]
    assert (found.usage.calls, found.usage.meta_tool_calls) == (3, 1)
