"""The prices of sessions relative to no proxy, and what the sessions in transcripts were billed."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from riglm.application.reports.figures import Observations, cost_fields
from riglm.domain.list_plan import Prices
from riglm.domain.session_cost import CODING_AGENT, DEFAULT_SIZES, Cost, SessionSizes
from riglm.domain.token_usage import ClientBill

_ARMS: Final = ("no_proxy", "host_search", "riglm")
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
        "clients": [_client_fields(bill, prices) for bill in record.bills],
        "default_sizes": asdict(DEFAULT_SIZES),
        "text": text,
    }


def _client_fields(bill: ClientBill, prices: Prices) -> dict[str, Any]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CostMetrics:
    """What sessions cost, the mean number of tools in their first lists, and the share of calls whose tool was listed.

    `listed` is None if no list hid anything.
    """

    cost: Cost
    tools: float
    first_list: float
    listed: float | None


def recorded_figures(record: Observations, *, as_coding_agent: bool = False) -> CostMetrics:
    """Return the figures of recorded sessions, of one mode."""
    first = {each.session: each for each in reversed(record.lists)}
    shown = [first[each.session] for each in record.costs]
    uses = record.judged
    return CostMetrics(
        cost=record.cost_as_coding_agent if as_coding_agent else record.cost,
        tools=mean_or_zero([each.available for each in shown]),
        first_list=mean_or_zero([each.shown for each in shown]),
        listed=mean_or_zero([use.is_hit for use in uses]) if uses else None,
    )


def cost_rows(figures: CostMetrics) -> list[dict[str, Any]]:
    """Return the figures of at least one session as one row for each arm; shares are in percent."""
    cost, listed = figures.cost, figures.listed
    lists = {
        "no_proxy": (round(figures.tools, 1), 100.0),
        "host_search": (None, None),
        "riglm": (round(figures.first_list, 1), None if listed is None else round(100 * listed, 1)),
    }
    return [
        {
            "arm": arm,
            "price": round(getattr(cost, arm) / cost.no_proxy, 3),
            "requests": round(getattr(cost, f"{arm}_requests") / cost.sessions, 1),
            "first_list": lists[arm][0],
            "listed": lists[arm][1],
        }
        for arm in _ARMS
    ]


def mean_or_zero(values: Sequence[float]) -> float:
    """Return the mean; 0 of nothing."""
    return sum(values) / len(values) if values else 0.0
