from hypothesis import given
from hypothesis import strategies as st

from riglm.domain.list_plan import (
    COLD_USAGE,
    META_TOOL_TOKENS,
    ListPlan,
    Prices,
    ToolCosts,
    cheapest_list,
    covering_list,
)
from riglm.domain.usage import Usage

TOOLS = tuple(f"tool_{number:02}" for number in range(40))
SMALL = TOOLS[:5]


def make_costs(names=TOOLS, tokens=200.0, **prices):
    return ToolCosts(tokens=dict.fromkeys(names, tokens), prices=Prices(**prices))


def make_usage(probabilities, requests=12.0, distinct_tools=None):
    expected = sum(probabilities.values()) if distinct_tools is None else distinct_tools
    return Usage(evidence=20, probabilities=probabilities, requests=requests, distinct_tools=expected)


def short(costs, usage, kept=frozenset(), order=TOOLS, bounds=(3, 30), own_tokens=META_TOOL_TOKENS):
    return cheapest_list(costs, usage, frozenset(kept), order, bounds, own_tokens)


@st.composite
def plans(draw):
    """Arguments of `cheapest_list`."""
    names = draw(st.lists(st.sampled_from(TOOLS), min_size=1, unique=True))
    sizes = draw(st.lists(st.floats(20, 3_000), min_size=len(names), max_size=len(names)))
    shares = draw(st.dictionaries(st.sampled_from([*TOOLS, "gone"]), st.floats(0, 1)))
    kept = draw(st.frozensets(st.sampled_from(names), max_size=4))
    least = draw(st.integers(0, 10))
    return (
        ToolCosts(tokens=dict(zip(names, sizes, strict=True)), prices=Prices()),
        make_usage(shares, requests=draw(st.floats(1, 60))),
        kept,
        tuple(names),
        (least, draw(st.integers(least, 40))),
        draw(st.floats(0, 2_000)),
    )


@given(plans())
def test_a_short_list_costs_less_than_the_whole_one_and_keeps_to_its_bounds(plan):
    costs, usage, kept, order, (least, most), own_tokens = plan
    tools = cheapest_list(*plan)
    if tools is None:
        return
    assert kept <= tools < set(order)
    assert least <= len(tools - kept) <= most
    assert costs.short_price(tools, usage, own_tokens) < costs.whole_price(usage.requests)


def test_a_small_catalog_is_listed_whole():
    assert short(make_costs(SMALL), make_usage(dict.fromkeys(SMALL, 0.4)), order=SMALL) is None
    assert short(make_costs(SMALL), COLD_USAGE, order=SMALL) is None


def test_of_a_large_catalog_the_likely_tools_are_listed():
    usage = make_usage(dict.fromkeys(TOOLS[10:16], 0.8) | dict.fromkeys(TOOLS[20:], 0.01))
    costs = make_costs(tokens=800.0)
    assert short(costs, usage) == set(TOOLS[10:16])


def test_a_list_without_likely_tools_is_filled_in_the_order_given():
    usage = make_usage(dict.fromkeys(TOOLS, 0.001), distinct_tools=1.0)
    assert short(make_costs(tokens=2_000.0), usage, order=TOOLS[::-1]) == set(TOOLS[-3:])


def test_kept_tools_are_listed_beside_the_bounds():
    usage = make_usage(dict.fromkeys(TOOLS[10:16], 0.8))
    kept = {TOOLS[0], TOOLS[10]}
    tools = short(make_costs(tokens=2_000.0), usage, kept=kept, bounds=(0, 2))
    assert kept <= tools
    assert tools - kept == set(TOOLS[11:13])


def test_tools_pay_the_more_the_likelier_and_smaller_they_are():
    costs = ToolCosts(tokens={"large": 3_000.0, "small": 100.0, "rare": 100.0}, prices=Prices())
    assert costs.paying({"large": 0.9, "small": 0.9, "rare": 0.01, "gone": 1.0}, 12.0) == ["small", "large"]
    assert costs.paying({"large": 0.1, "small": 0.1, "rare": 0.0}, 12.0) == ["small"]


@given(st.floats(0, 1), st.floats(0, 1), st.floats(20, 3_000), st.floats(1, 60))
def test_a_tool_that_pays_also_pays_when_it_is_likelier(one, other, tokens, requests):
    costs, (low, high) = make_costs(SMALL, tokens), sorted((one, other))
    assert len(costs.paying({SMALL[0]: low}, requests)) <= len(costs.paying({SMALL[0]: high}, requests))


def test_dearer_extra_requests_list_more_tools():
    shares = {tool: number / len(TOOLS) for number, tool in enumerate(TOOLS)}
    counts = [len(make_costs(extra_request=price).paying(shares, 12.0)) for price in (0.0, 1_000.0, 10_000.0)]
    assert counts == sorted(set(counts))


def test_next_to_a_host_s_search_a_listed_tool_saves_a_result_of_five_definitions():
    tokens, shares = {"small": 100.0, "large": 3_000.0}, {"small": 0.1}
    alone = ToolCosts(tokens=tokens, prices=Prices(extra_request=0.0))
    assert alone.paying(shares, 12.0) == []
    for extra_request in (0.0, 10_000.0):
        costs = ToolCosts(tokens=tokens, prices=Prices(extra_request=extra_request)).next_to_search
        assert costs.paying(shares, 12.0) == ["small"]
        assert costs.paying({"small": 0.01}, 12.0) == []


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
    tools = covering_list(make_usage(shares), kept, TOOLS, (least, most), coverage)
    free = {tool: share for tool, share in shares.items() if tool not in kept}
    chosen = tools - kept
    assert kept <= tools
    assert least <= len(chosen) <= most
    held = sum(free.get(tool, 0.0) for tool in chosen)
    assert len(chosen) == most or held >= coverage * sum(free.values()) - 1e-9


def test_a_covering_list_has_the_fewest_tools():
    usage = make_usage({"a": 0.1, "b": 0.8, "c": 0.1})
    assert covering_list(usage, frozenset(), ("a", "b", "c", "d"), (0, 9), 0.8) == {"b"}
    assert covering_list(usage, frozenset(), ("a", "b", "c", "d"), (0, 9), 0.85) == {"a", "b"}
    assert covering_list(usage, frozenset(), ("a", "b", "c"), (0, 9), 1.0) is None


def test_a_plan_without_tools_of_its_own_lists_all_candidates():
    assert ListPlan(candidates=SMALL).listed == set(SMALL)
    assert ListPlan(candidates=SMALL, tools=frozenset(SMALL[:1])).listed == {SMALL[0]}
