import pytest
from hypothesis import given
from hypothesis import strategies as st

from riglm.domain.list_plan import CALL_TOKENS, OUTPUT_TOKENS, PROMPT_TOKENS, Prices
from riglm.domain.session_cost import SessionPrice, SessionSizes

PRICES = Prices(cached_input=0.1, cache_write=1.25, output=5.0, search_reliability=0.9)
tokens = st.integers(0, 100_000)
counts = st.integers(0, 40)


def price_of(*requests, added=0):
    """Return the price of requests of (list tokens, list key), each adding tokens to the messages."""
    session = SessionPrice(PRICES)
    for size, key in requests:
        session.list = (size, key)
        session.add(added)
    return session.total


def test_a_session_s_price_is_the_sum_of_its_requests():
    session = SessionPrice(PRICES)
    session.list = (1_000, "short")
    session.add(500)
    assert session.total == pytest.approx(1.25 * (1_000 + PROMPT_TOKENS) + 5 * OUTPUT_TOKENS)
    session.add(300)
    session.list = (3_000, "long")
    session.add(0)
    assert session.requests == 3
    assert session.total == pytest.approx(
        1.25 * (1_000 + PROMPT_TOKENS)
        + 0.1 * (1_000 + PROMPT_TOKENS)
        + 1.25 * 500
        + 1.25 * (3_000 + PROMPT_TOKENS + 800)
        + 3 * 5 * OUTPUT_TOKENS
    )


@given(tokens, tokens, counts)
def test_added_tokens_cost_what_a_session_with_them_costs_more(size, more, later):
    requests = later + 1
    difference = price_of(*[(size + more, "list")] * requests, added=50) - price_of(
        *[(size, "list")] * requests, added=50
    )
    assert PRICES.added(more, later) == pytest.approx(difference, abs=1e-3)


def test_a_shorter_list_pays_in_a_long_session_only():
    assert PRICES.list_change(PROMPT_TOKENS, 20_000, 2_000, 1) > 0
    assert PRICES.list_change(PROMPT_TOKENS, 20_000, 2_000, 40) < 0


def test_the_risk_of_a_hidden_tool_is_a_share_of_the_session_s_price():
    prompt = 8_000 * (1.25 + 0.1 * 10)
    calls = 10 * CALL_TOKENS * (1.25 + 0.1 * 5)
    output = 10 * 5 * OUTPUT_TOKENS
    assert PRICES.risk(8_000, 10) == pytest.approx(0.1 * (prompt + calls + output))
    assert Prices(search_reliability=1.0).risk(8_000, 10) == 0.0
    assert Prices().risk(8_000, 10) == pytest.approx(0.3 * PRICES.risk(8_000, 10))


@given(tokens, st.integers(1, 40))
def test_the_session_that_a_hidden_tool_puts_at_risk_costs_what_its_requests_cost(size, requests):
    """Its requests are those after the first, which only reads the prompt."""
    session = SessionPrice(PRICES, list_tokens=size)
    session.add(CALL_TOKENS, requests + 1)
    whole = session.total - 5 * OUTPUT_TOKENS
    assert PRICES.risk(size + PROMPT_TOKENS, requests) == pytest.approx(0.1 * whole, rel=0.03)


@given(requests=counts, share=st.floats(0.0, 1.0), before=st.booleans())
def test_requests_cost_the_same_added_at_once_and_one_by_one(requests, share, before):
    sizes = SessionSizes(cached_share=share, written_share=share)
    at_once, each = (SessionPrice(PRICES, sizes, 900) for _ in range(2))
    for session in (at_once, each):
        session.add(700, int(before))
        session.list = (1_000, "list")
    at_once.add(700, requests)
    for _ in range(requests):
        each.add(700)
    for session in (at_once, each):
        session.add(0)
    assert at_once.requests == each.requests
    assert at_once.total == pytest.approx(each.total)
