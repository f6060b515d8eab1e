"""The price of sessions, computed by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riglm.domain.list_plan import Prices
from riglm.domain.session_cost import CODING_AGENT, SessionCost, SessionSizes
from tests.records import a_session, an_exposure

SESSION = a_session()
TOKENS = {"tokens_shown": 1_200, "tokens_hidden": 3_000, "tokens_own": 200}
SHORT = {"hidden": ("b", "c", "d"), "surface": "dynamic", "mode": "enforce", **TOKENS}
FIRST = 1.25 * (1_200 + 6_000) + 5 * 80  # the whole prompt is written to the cache
NEXT = 1.25 * 450 + 5 * 80  # a call and its result are new, the rest is read


def cost_of(*events, prices=None, sizes=None):
    """Return the cost of exposures and of calls, by the name of the tool."""
    session = SessionCost(prices or Prices(), sizes or SessionSizes())
    for event in events:
        if isinstance(event, str):
            session.called(event)
        else:
            session.shown(event)
    return session.finish()


def test_a_listed_call_is_a_request_and_another_one_ends_the_session():
    cost = cost_of(an_exposure(SESSION, "a", **SHORT), "a")
    assert cost.riglm == FIRST + 0.1 * 7_200 + NEXT == 11_082.5
    assert cost.no_proxy == 1.25 * 10_000 + 400 + 0.1 * 10_000 + NEXT == 14_862.5
    assert cost.price == 11_082.5 / 14_862.5
    assert (cost.sessions, cost.riglm_requests, cost.no_proxy_requests) == (1, 2, 2)


def test_the_search_of_a_host_takes_one_more_request_for_each_new_tool():
    cost = cost_of(an_exposure(SESSION, "a", **SHORT), "a")
    search = 1.25 * (300 + 6_000) + 400
    call = 0.1 * 6_300 + 1.25 * (120 + 5 * 1_000) + 400
    assert cost.host_search == search + call + 0.1 * 11_420 + NEXT
    assert cost.price_of_search == cost.riglm / cost.host_search
    twice = cost_of(an_exposure(SESSION, "a", **SHORT), "a", "a")
    assert (cost.host_search_requests, twice.host_search_requests) == (3, 4)


def test_a_search_is_a_request_whose_result_stays_in_the_conversation():
    result = an_exposure(SESSION, "b", surface="search", mode="enforce", tokens_shown=1_000)
    cost = cost_of(an_exposure(SESSION, "a", **SHORT), result, "b")
    call = 0.1 * 7_200 + 1.25 * (120 + 1.2 * 1_000) + 400
    assert cost.riglm == FIRST + call + 0.1 * (7_200 + 1_320) + NEXT
    assert (cost.riglm_requests, cost.no_proxy_requests) == (3, 2)


def test_a_search_of_the_host_next_to_a_short_list_has_the_same_result_as_that_of_a_host_alone():
    session = SessionCost(Prices())
    session.shown(an_exposure(SESSION, "a", **SHORT))
    session.searched_by_host()
    session.called("b")
    cost = session.finish()
    call = 0.1 * 7_200 + 1.25 * (120 + 5 * 1_000) + 400
    assert cost.riglm == pytest.approx(FIRST + call + 0.1 * (7_200 + 5_120) + NEXT)
    assert cost.riglm_requests == cost.host_search_requests == 3


def test_in_shadow_mode_each_tool_that_would_be_hidden_is_searched_for_once():
    shadow = an_exposure(SESSION, "a", **{**SHORT, "mode": "shadow"})
    cost = cost_of(shadow, "b", "b", "a")
    assert (cost.riglm_requests, cost.no_proxy_requests) == (5, 4)
    assert cost.riglm > cost_of(shadow, "a", "a", "a").riglm


@pytest.mark.parametrize("mode", ["enforce", "shadow"])
def test_preload_hints_are_compared_with_the_search_of_the_host(mode):
    hinted = an_exposure(SESSION, "a", **{**SHORT, "mode": mode, "surface": "hints"})
    hit, missed = cost_of(hinted, "a", "a"), cost_of(hinted, "b", "b")
    assert (hit.riglm_requests, hit.host_search_requests, missed.riglm_requests) == (3, 4, 4)
    assert hit.no_proxy == hit.host_search == missed.host_search
    assert hit.riglm < hit.no_proxy < missed.riglm


def test_the_sizes_of_a_client_replace_the_defaults():
    cost = cost_of(an_exposure(SESSION, "a", **SHORT), "a", sizes=CODING_AGENT)
    assert cost.riglm == 1.25 * 21_200 + 400 + 0.1 * 21_200 + 1.25 * 2_000 + 400
    sizes = SessionSizes(
        prompt_tokens=100, call_tokens=10, output_tokens=1, cached_share=0.5, written_share=0.0, own_requests=5.3
    )
    cost = cost_of(an_exposure(SESSION, "a", **SHORT), "a", "a", sizes=sizes)
    assert (cost.riglm_requests, cost.no_proxy_requests) == (8, 8)
    prompts = [1_300 + 10 * place for place in range(8)]
    cached = [0, *(prompt / 2 for prompt in prompts)]
    billed = sum(0.1 * read + (prompt - read) + 5 for prompt, read in zip(prompts, cached, strict=False))
    assert cost.riglm == pytest.approx(billed)


CATALOGS = st.lists(st.sets(st.sampled_from("abcdef"), min_size=1), min_size=1, max_size=4)


@given(
    catalogs=CATALOGS,
    calls=st.lists(st.sampled_from("abcdef"), min_size=1, max_size=20),
    mode=st.sampled_from(["enforce", "shadow"]),
)
def test_a_list_that_hides_nothing_costs_exactly_what_no_proxy_costs(catalogs, calls, mode):
    events = []
    for catalog in catalogs:
        names = sorted(catalog)
        events.append(an_exposure(SESSION, *names, mode=mode, surface="dynamic", tokens_shown=100 * len(names)))
        events += [call for call in calls if call in catalog]
    cost = cost_of(*events)
    assert cost is None or cost.price == 1.0
