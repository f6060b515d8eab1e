from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riglm.domain.learning import Usage
from riglm.domain.list_plan import (
    COLD_USAGE,
    META_TOOL_TOKENS,
    Prices,
    ToolCosts,
    covering_list,
    expected_usage,
    prior_probabilities,
)

TOOLS = tuple(f"tool_{number:02}" for number in range(40))
SMALL = TOOLS[:5]


def make_costs(names=TOOLS, tokens=200.0, **prices):
    return ToolCosts(tokens=dict.fromkeys(names, tokens), prices=Prices(**prices))


def make_usage(probabilities, requests=12.0, distinct_tools=None, evidence=20):
    expected = sum(probabilities.values()) if distinct_tools is None else distinct_tools
    return Usage(evidence=evidence, probabilities=probabilities, requests=requests, distinct_tools=expected)


def by_need(order, shares):
    """Return tools, the likeliest first, of equal ones the first of an order."""
    return sorted(order, key=lambda tool: -shares.get(tool, 0.0))


def short(costs, usage, kept=frozenset(), order=TOOLS, bounds=(3, 30), own_tokens=META_TOOL_TOKENS):
    order = by_need(order, usage.probabilities)
    return costs.cheapest_list(usage, frozenset(kept), order, bounds, own_tokens)


@st.composite
def plans(draw):
    """Arguments of `short`."""
    names = draw(st.lists(st.sampled_from(TOOLS), min_size=1, unique=True))
    sizes = draw(st.lists(st.floats(20, 3_000), min_size=len(names), max_size=len(names)))
    shares = draw(st.dictionaries(st.sampled_from([*TOOLS, "gone"]), st.floats(0, 1)))
    kept = draw(st.frozensets(st.sampled_from(names), max_size=4))
    least = draw(st.integers(0, 10))
    return (
        ToolCosts(tokens=dict(zip(names, sizes, strict=True)), prices=Prices()),
        make_usage(shares, requests=draw(st.floats(1, 60)), evidence=draw(st.integers(0, 20))),
        kept,
        tuple(names),
        (least, draw(st.integers(least, 40))),
        draw(st.floats(0, 2_000)),
    )


@given(plans())
def test_a_short_list_costs_less_than_the_whole_one_and_keeps_to_its_bounds(plan):
    costs, usage, kept, order, (least, most), own_tokens = plan
    tools = short(*plan)
    if tools == set(order):
        return
    assert kept <= tools < set(order)
    assert least <= len(tools - kept) <= most
    assert costs.short_price(tools, usage, own_tokens) < costs.whole_price(usage.requests)


@given(plans())
def test_a_list_is_filled_from_the_eleventh_session_on_with_likely_tools_up_to_its_limits(plan):
    costs, usage, kept, order, (_, most), own_tokens = plan
    before = short(costs, replace(usage, evidence=10), *plan[2:])
    after = short(costs, replace(usage, evidence=11), *plan[2:])
    if before == set(order):
        assert after == before
        return
    assert before <= after
    added = after - before
    shares = usage.probabilities
    assert all(shares.get(tool, 0.0) >= 0.1 for tool in added)
    if added:
        price = costs.short_price(after, usage, own_tokens)
        assert price < costs.whole_price(usage.requests)
        assert price < costs.search_price(usage)
        assert len(after - kept) <= most
        rarest = min(added, key=lambda tool: shares[tool])
        held = sum(shares.get(tool, 0.0) for tool in after)
        assert held - shares[rarest] < 0.85 * usage.distinct_tools + 1e-9
        left_out = [shares.get(tool, 0.0) for tool in order if tool not in after]
        assert max(left_out, default=0.0) <= shares[rarest]


def fillable(**known):
    """Tools that a third of the sessions need and that are too large to pay, beside one that does."""
    costs = ToolCosts(tokens={TOOLS[0]: 100.0} | dict.fromkeys(TOOLS[1:], 2_000.0), prices=Prices())
    shares = {TOOLS[0]: 0.9} | dict.fromkeys(TOOLS[1:8], 0.35) | dict.fromkeys(TOOLS[8:12], 0.099)
    return costs, make_usage(shares, **known)


@pytest.mark.parametrize(
    ("distinct_tools", "most", "count"),
    [
        (2.6, 30, 5),  # 0.85 * 2.6 = 2.21 <= 0.9 + 4 * 0.35
        (2.0, 30, 4),
        (1.0, 30, 1),
        (5.0, 30, 8),  # the next tool is needed in fewer than one of ten sessions
        (5.0, 6, 6),
        (5.0, 1, 1),
    ],
)
def test_a_list_is_filled_up_to_the_expected_hits_the_likely_tools_and_max_tools(distinct_tools, most, count):
    costs, usage = fillable(distinct_tools=distinct_tools)
    assert short(costs, usage, bounds=(0, most)) == set(TOOLS[:count])


def test_a_small_catalog_is_listed_whole():
    assert short(make_costs(SMALL), make_usage(dict.fromkeys(SMALL, 0.4)), order=SMALL) == set(SMALL)
    assert short(make_costs(SMALL), expected_usage(COLD_USAGE, dict.fromkeys(SMALL, 0.01)), order=SMALL) == set(SMALL)


def test_of_a_large_catalog_the_likely_tools_are_listed():
    usage = make_usage(dict.fromkeys(TOOLS[10:16], 0.8) | dict.fromkeys(TOOLS[20:], 0.01))
    costs = make_costs(tokens=800.0)
    assert short(costs, usage) == set(TOOLS[10:16])


def test_tools_pay_the_more_the_likelier_and_smaller_they_are():
    costs = ToolCosts(tokens={"large": 3_000.0, "small": 100.0, "rare": 100.0}, prices=Prices())
    assert costs.paying({"large": 0.9, "small": 0.9, "rare": 0.01, "gone": 1.0}, 12.0) == ["small", "large"]
    assert costs.paying({"large": 0.1, "small": 0.1, "rare": 0.0}, 12.0) == ["small"]


def test_a_less_reliable_search_lists_more_tools():
    shares = {tool: number / len(TOOLS) for number, tool in enumerate(TOOLS)}
    costs = [make_costs(search_reliability=share) for share in (1.0, 0.9, 0.5)]
    counts = [len(each.paying(shares, 12.0)) for each in costs]
    assert counts == sorted(set(counts))
    sent = [len(each.sendable(shares, make_usage({}), 6, 40)) for each in costs]
    assert sent == sorted(set(sent))


def test_next_to_a_host_s_search_a_listed_tool_saves_a_result_of_five_definitions():
    tokens, shares = {"small": 100.0, "large": 3_000.0}, {"small": 0.1}
    alone = ToolCosts(tokens=tokens, prices=Prices(search_reliability=1.0))
    assert alone.paying(shares, 12.0) == []
    for search_reliability in (1.0, 0.5):
        costs = ToolCosts(tokens=tokens, prices=Prices(search_reliability=search_reliability))
        assert costs.paying(shares, 12.0, has_host_search=True) == ["small"]
        assert costs.paying({"small": 0.01}, 12.0, has_host_search=True) == []


def test_definitions_that_pay_are_sent_likeliest_first_up_to_the_limit():
    usage = make_usage({})
    costs = make_costs(SMALL)
    shares = {SMALL[0]: 0.8, SMALL[1]: 0.9, SMALL[2]: 0.001, SMALL[3]: 0.7, "gone": 1.0}
    assert costs.sendable(shares, usage, 2, 10) == [SMALL[1], SMALL[0], SMALL[3]]
    assert costs.sendable(shares, usage, 2, 2) == [SMALL[1], SMALL[0]]


def test_the_price_of_a_short_list_counts_the_detours_to_the_others():
    costs, usage = make_costs(SMALL, 100.0), make_usage({SMALL[0]: 1.0, SMALL[1]: 1.0}, requests=10.0)
    both, one = costs.short_price(SMALL[:2], usage, 50.0), costs.short_price(SMALL[:1], usage, 50.0)
    assert one > both == costs.prices.added(250.0, 10.0)


@given(st.dictionaries(st.sampled_from(TOOLS), st.floats(0, 1)), st.floats(0, 1), st.integers(0, 5))
def test_a_covering_list_holds_the_share_of_the_need_or_as_many_tools_as_it_may(shares, coverage, least):
    most, kept = 12, frozenset(TOOLS[:2])
    tools = covering_list(shares, kept, by_need(TOOLS, shares), (least, most), coverage)
    free = {tool: share for tool, share in shares.items() if tool not in kept}
    chosen = tools - kept
    assert kept <= tools <= set(TOOLS)
    assert least <= len(chosen) <= most
    held = sum(free.get(tool, 0.0) for tool in chosen)
    assert len(chosen) == most or held >= coverage * sum(free.values()) - 1e-9
    left_out = [share for tool, share in free.items() if tool not in chosen]
    assert max(left_out, default=0.0) <= min((free.get(tool, 0.0) for tool in chosen), default=1.0)


def test_a_covering_list_has_the_fewest_tools():
    shares, order = {"a": 0.1, "b": 0.8, "c": 0.1, "gone": 0.9}, ("b", "a", "c", "d")
    assert covering_list(shares, frozenset(), order, (0, 9), 0.8) == {"b"}
    assert covering_list(shares, frozenset(), order, (0, 9), 0.85) == {"a", "b"}
    assert covering_list(shares, frozenset(), order, (0, 9), 1.0) == {"a", "b", "c"}
    assert covering_list(shares, frozenset(), order, (4, 9), 0.8) == set(order)
    assert covering_list(shares, frozenset(), order, (0, 1), 1.0) == {"b"}
    assert covering_list({}, frozenset("d"), order, (2, 9), 0.8) == {"b", "a", "d"}


def make_prior(count, *useful):
    """Return the prior of so many tools, of which some are surely everyday utilities."""
    everyday = {f"tool_{number:03}": 0.0 for number in range(count)} | dict.fromkeys(useful, 1.0)
    return prior_probabilities(everyday)


@pytest.mark.parametrize(
    ("count", "distinct"), [(1, 3.0), (20, 3.0), (40, 3.232), (50, 3.5), (60, 3.719), (200, 5.164), (525, 6.322)]
)
def test_nothing_learned_is_the_prior(count, distinct):
    prior = make_prior(count - 1, "read_file")
    usage = expected_usage(COLD_USAGE, prior)
    assert usage.evidence == 0
    assert usage.probabilities == prior
    assert (usage.probabilities["read_file"], usage.requests) == (0.12, 12.0)
    assert usage.distinct_tools == pytest.approx(distinct, abs=1e-3)


def test_three_sessions_weigh_as_much_as_the_prior():
    recorded = make_usage({"read_file": 0.9, "tool_000": 0.4, "gone": 1.0}, 20.0, distinct_tools=6.5, evidence=3)
    usage = expected_usage(recorded, make_prior(49, "read_file"))
    assert usage.probabilities["read_file"] == pytest.approx((0.9 + 0.12) / 2)
    assert usage.probabilities["tool_000"] == pytest.approx((0.4 + 0.01) / 2)
    assert usage.probabilities["tool_001"] == pytest.approx(0.01 / 2)
    assert "gone" not in usage.probabilities
    assert (usage.requests, usage.distinct_tools, usage.evidence) == (16.0, pytest.approx((6.5 + 3.5) / 2), 3)
