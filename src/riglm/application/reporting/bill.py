"""The prices of recorded sessions, next to what the sessions in transcripts were billed."""

from dataclasses import asdict
from typing import Any, Final

from riglm.application.evaluation.record import Observations, cost_fields
from riglm.domain.list_plan import Prices
from riglm.domain.session_cost import CODING_AGENT, DEFAULT_SIZES, Cost, SessionSizes
from riglm.domain.token_usage import ClientBill

_TOKENS: Final = ("uncached", "cached", "written", "output")


def format_headline(record: Observations) -> list[str]:
    """Return the price of the recorded sessions, and of the same as those of a coding agent; nothing without prices."""
    now, billed = record.now, {bill.client for bill in record.bills}
    is_fitted = any(session.client in billed for session in record.sessions)
    sizes = "with the sizes of your own bill" if is_fitted else _format_sizes(DEFAULT_SIZES)
    agents = _format_price("coding agents", now.cost_as_coding_agent, _format_sizes(CODING_AGENT))
    return [*_format_price("price", now.cost, sizes), *agents]


def bill_fields(record: Observations, prices: Prices) -> dict[str, Any]:
    """Return the billed price of each client with token usage next to that of the price model.

    Prices are in tokens of uncached input. `modeled` is the price with the `sizes` of the client, which all its prices
    in the report use, and `modeled_by_default` that with the default sizes.
    """
    sizes = _format_sizes(DEFAULT_SIZES)
    text = f"These sizes price the sessions of these clients; those of others have {sizes}."
    if not record.bills:
        text = (
            f"No token usage is stored, so prices assume {sizes}. `riglm learn-from` reads it from the transcripts of "
            "Claude Code, Codex and Gemini CLI."
        )
    return {
        "clients": [_client(bill, prices) for bill in record.bills],
        "default_sizes": asdict(DEFAULT_SIZES),
        "text": text,
    }


def _client(bill: ClientBill, prices: Prices) -> dict[str, Any]:
    sizes = bill.sizes
    return {
        "client": bill.client,
        "sessions": len(bill.sessions),
        **{count: bill.total(count) for count in ("requests", "calls")},
        "requests_per_session": round(bill.total("requests") / len(bill.sessions), 1),
        "tokens": {count: bill.total(count) for count in _TOKENS},
        "billed": round(bill.billed_price(prices), 1),
        "modeled": round(bill.modeled_price(prices, sizes), 1),
        "modeled_by_default": round(bill.modeled_price(prices, DEFAULT_SIZES), 1),
        "sizes": {name: round(size, 3) for name, size in asdict(sizes).items()},
    }


def _format_price(name: str, cost: Cost, sizes: str) -> list[str]:
    fields = cost_fields(cost)
    if fields["price"] is None:
        return []
    of_search = f"{fields['price_of_search']:.2f} of the host's tool search"
    return [f"{name}: {fields['price']:.2f} of no proxy, {of_search} ({sizes})"]


def _format_sizes(sizes: SessionSizes) -> str:
    return f"prompts of {sizes.prompt_tokens:,.0f} tokens and results of {sizes.call_tokens:,.0f}"
