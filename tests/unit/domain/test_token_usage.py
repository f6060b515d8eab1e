"""The sizes that are fitted to token usage give the price model the counted tokens."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riglm.domain.list_plan import Prices
from riglm.domain.session_cost import DEFAULT_SIZES, ClientBill, RequestTokens, TokenUsage
from tests.records import a_token_usage

SESSION = {
    "id": None,
    "session_id": None,
    "client": "cursor",
    "client_id": "",
    "principal": "",
    "started_at": 0.0,
    "calls": 2,
}


def usage(*requests, **known):
    return TokenUsage.from_requests([RequestTokens(*each) for each in requests], **{**SESSION, **known})


def bill(*sessions, list_tokens=0.0):
    return ClientBill(client="cursor", sessions=tuple((each, list_tokens) for each in sessions))


def test_requests_are_counted_in_their_order():
    counted = usage((100, 0, 900, 7), (100, 1_000, 100, 8), (50, 900, 250, 9))
    assert counted == a_token_usage(
        **SESSION,
        requests=3,
        uncached=250,
        cached=1_900,
        written=1_250,
        output=24,
        first_prompt=1_000,
        repeated=2_200,
        reused=1_900,
    )
    assert counted.billed_price(Prices()) == 250 + 0.1 * 1_900 + 1.25 * 1_250 + 5 * 24


def test_the_tool_list_is_no_part_of_the_prompt():
    session = usage((0, 0, 8_000, 50), (0, 8_000, 500, 50))
    assert bill(session).sizes.prompt_tokens == 8_000
    assert bill(session, list_tokens=3_000).sizes.prompt_tokens == 5_000
    assert bill(session, list_tokens=9_000).sizes.prompt_tokens == 0
    for tokens in (0.0, 3_000.0):
        its = bill(session, list_tokens=tokens)
        assert its.modeled_price(Prices(), its.sizes) == its.billed_price(Prices())


def test_a_size_that_no_request_shows_is_the_default():
    sizes = bill(usage((0, 0, 8_000, 50), calls=0)).sizes
    assert sizes == replace(DEFAULT_SIZES, prompt_tokens=8_000, output_tokens=50)


def test_requests_for_tools_of_the_client_are_those_of_sessions_with_calls_of_others():
    request = (0, 0, 8_000, 50)
    sessions = usage(*[request] * 11, calls=2), usage(*[request] * 2, calls=4), usage(*[request] * 5, calls=0)
    assert bill(*sessions).sizes.own_requests == 4


COUNTS = st.integers(0, 50_000)


@given(
    st.lists(
        st.lists(st.tuples(COUNTS, COUNTS, COUNTS, COUNTS), min_size=1, max_size=6).map(
            lambda requests: sorted(requests, key=lambda each: sum(each[:3]))  # prompts grow
        ),
        min_size=1,
        max_size=3,
    )
)
def test_without_discounts_the_model_computes_what_was_billed(sessions):
    prices = Prices(cached_input=1.0, cache_write=1.0)
    its = bill(*(usage(*requests) for requests in sessions))
    assert its.modeled_price(prices, its.sizes) == pytest.approx(its.billed_price(prices))
