"""What a session's model requests cost through riglm, without a proxy, and with the tool search of a host.

Every call and every search is one model request, and one more request ends the session. A client's own tools take the
further requests of `SessionSizes`: half of them before the first call, the others at the end. Prices follow `Prices`
and `SessionPrice`. The host's search defers every tool: each tool that is new to the session takes one more request,
and its result adds definitions to the conversation. On the surface `hints` the host defers the tools without a preload
hint, and it would defer all of them without riglm: no proxy then costs what the host's search costs.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final

from riglm.domain.exposure import Exposure, Mode, Surface
from riglm.domain.list_plan import (
    CALL_TOKENS,
    HOST_LIST_TOKENS,
    HOST_SEARCH_RESULTS,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    RESULT_OVERHEAD,
    SEARCH_TOKENS,
    Prices,
)

SHADOW_SEARCH_RESULTS: Final = 3
"""Definitions in a result of riglm's search where shadow mode has to assume one."""

MAX_SESSIONS: Final = 1_000
"""Number of the latest sessions that figures are of, unless another number is given."""

MAX_CALLS: Final = 50_000
"""Number of calls that figures are of: sessions before the latest ones that reach it are left out."""

MIN_PRICED_SESSIONS: Final = 2
"""Of fewer sessions no price is reported: one session says nothing of others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSizes:
    """The sizes that the price of a client's sessions depends on. The defaults are estimates.

    `prompt_tokens` are those of the system prompt and the first message, `call_tokens` those that a request and the
    results for it add to the conversation, and `output_tokens` those that a request generates. `cached_share` is the
    share of the previous prompt that a request reads from the cache, and `written_share` the share of all other input
    tokens that is written to the cache. `own_requests` are the model requests of a session for tools of the client.
    """

    prompt_tokens: float = PROMPT_TOKENS
    call_tokens: float = CALL_TOKENS
    output_tokens: float = OUTPUT_TOKENS
    cached_share: float = 1.0
    written_share: float = 1.0
    own_requests: float = 0.0


DEFAULT_SIZES: Final = SessionSizes()

CODING_AGENT: Final = SessionSizes(prompt_tokens=20_000, call_tokens=2_000)
"""The sizes of a coding agent, whose instructions and results are longer."""


class SessionPrice:
    """The price of one session's model requests, added up request by request."""

    def __init__(self, prices: Prices, sizes: SessionSizes = DEFAULT_SIZES) -> None:
        self.total = 0.0
        self.requests = 0
        self.messages = float(sizes.prompt_tokens)
        """Tokens of the system prompt and the messages so far."""
        self._prices = prices
        self._sizes = sizes
        self._list: object = None
        self._cached = 0.0

    def request(self, list_tokens: float, list_key: object) -> None:
        """Add a model request whose prompt begins with a tool list; equal keys mean equal bytes."""
        prompt = list_tokens + self.messages
        self._add(1, self._cached if self.requests and list_key == self._list else 0.0, prompt)
        self._cached, self._list = prompt, list_key

    def work(self, requests: int, list_tokens: float, list_key: object) -> None:
        """Add model requests with one list, each of which adds its results to the messages."""
        if not requests:
            return
        growth, others = self._sizes.call_tokens, requests - 1
        self.request(list_tokens, list_key)
        self.messages += growth
        prompts = others * (list_tokens + self.messages) + growth * others * (others - 1) / 2
        self._add(others, prompts - others * growth, prompts)
        self.messages += growth * others
        self._cached = list_tokens + self.messages - growth

    def _add(self, requests: int, repeated: float, prompts: float) -> None:
        """Add requests with prompts that together begin with `repeated` tokens of the prompts before them."""
        prices, sizes = self._prices, self._sizes
        cached = sizes.cached_share * repeated
        uncached_price = sizes.written_share * prices.cache_write + (1.0 - sizes.written_share)
        self.total += prices.cached_input * cached + uncached_price * (prompts - cached)
        self.total += prices.output * sizes.output_tokens * requests
        self.requests += requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Prices and numbers of the model requests of sessions; prices are in tokens of uncached input."""

    sessions: int = 0
    calls: int = 0
    riglm: float = 0.0
    no_proxy: float = 0.0
    host_search: float = 0.0
    riglm_requests: int = 0
    no_proxy_requests: int = 0
    host_search_requests: int = 0

    @property
    def price(self) -> float | None:
        """Return the price relative to no proxy, None without sessions."""
        return self.riglm / self.no_proxy if self.no_proxy else None

    @property
    def price_of_search(self) -> float | None:
        """Return the price relative to a host's tool search, None without sessions."""
        return self.riglm / self.host_search if self.host_search else None

    @classmethod
    def sum(cls, costs: Iterable["Cost"]) -> "Cost":
        """Return the sum of costs."""
        found = list(costs)
        return cls(**{each.name: sum(getattr(cost, each.name) for cost in found) for each in fields(cls)})


class SessionCost:
    """Prices one session from its lists, the results of its searches, and its calls, given in their order.

    Calls of tools that a list in shadow mode would have hidden, or that the host defers, are taken to need a search,
    once for each tool.
    """

    def __init__(self, prices: Prices, sizes: SessionSizes = DEFAULT_SIZES) -> None:
        self._own_requests = round(sizes.own_requests)
        self._riglm = SessionPrice(prices, sizes)
        self._no_proxy = SessionPrice(prices, sizes)
        self._host_search = SessionPrice(prices, sizes)
        self._list: Exposure | None = None
        self._riglm_list: tuple[float, object] = (0.0, None)
        self._whole_list: tuple[float, object] = (0.0, None)
        self._definition = 0.0
        self._mode: Mode = "off"
        self._used: set[str] = set()
        self._found: set[str] = set()
        self._calls = 0

    @property
    def mode(self) -> Mode:
        """Return the mode of the first list that has a price, `off` before it."""
        return self._mode

    def shown(self, exposure: Exposure) -> None:
        """Add a list, or the result of a search or of a new context; a list that was not selected has no price."""
        if not exposure.is_list:
            self._result(exposure.tokens_shown)
            return
        if exposure.mode == "off":
            self._list = None
            return
        names = frozenset(exposure.shown)
        self._list = exposure
        self._mode = exposure.mode if self._mode == "off" else self._mode
        search = HOST_LIST_TOKENS if exposure.surface == Surface.HINTS else 0
        self._riglm_list = (exposure.tokens_shown + search, (names, exposure.tokens_own))
        self._whole_list = (exposure.tokens_all, names.union(exposure.hidden))
        self._definition = exposure.tokens_all / max(1, len(exposure.shown) + len(exposure.hidden))

    def searched_by_host(self) -> None:
        """Add a search of the host for a tool that it defers although riglm lists it."""
        self._result(HOST_SEARCH_RESULTS * self._definition / RESULT_OVERHEAD)

    def called(self, tool: str) -> None:
        """Add a call of an upstream tool; calls before the first list have no price."""
        shown = self._list
        if shown is None:
            return
        self._calls += 1
        if self._calls == 1:
            self._work(self._own_requests // 2)
        if tool not in self._used:
            self._used.add(tool)
            self._host_search.request(HOST_LIST_TOKENS, None)
            self._host_search.messages += SEARCH_TOKENS + HOST_SEARCH_RESULTS * self._definition
        is_deferred = shown.surface == Surface.HINTS
        if (is_deferred or shown.mode == "shadow") and tool not in self._found and tool not in shown.shown:
            self._found.add(tool)
            if is_deferred:
                self.searched_by_host()
            else:
                self._result(SHADOW_SEARCH_RESULTS * self._definition)
        self._work(1)

    def finish(self) -> Cost | None:
        """Add the last request and return the cost; None if no call had a price. To be called once."""
        if not self._calls:
            return None
        self._work(self._own_requests - self._own_requests // 2 + 1)
        is_deferred = self._list is not None and self._list.surface == Surface.HINTS
        no_proxy = self._host_search if is_deferred else self._no_proxy
        return Cost(
            sessions=1,
            calls=self._calls,
            riglm=self._riglm.total,
            no_proxy=no_proxy.total,
            host_search=self._host_search.total,
            riglm_requests=self._riglm.requests,
            no_proxy_requests=no_proxy.requests,
            host_search_requests=self._host_search.requests,
        )

    def _work(self, requests: int) -> None:
        self._riglm.work(requests, *self._riglm_list)
        self._no_proxy.work(requests, *self._whole_list)
        self._host_search.work(requests, HOST_LIST_TOKENS, None)

    def _result(self, tokens: float) -> None:
        if self._list is not None:
            self._riglm.request(*self._riglm_list)
            self._riglm.messages += SEARCH_TOKENS + RESULT_OVERHEAD * tokens
