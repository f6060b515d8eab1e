"""What a session's model requests cost through riglm, without a proxy, and with the tool search of a host.

Every call and every search is one model request, and one more request ends the session. A client's own tools take the
further requests of `SessionSizes`: half of them before the first call, the others at the end. Prices follow `Prices`
and `SessionPrice`. The host's search defers every tool: each tool that is new to the session takes one more request,
and its result adds definitions to the conversation. On the surface `hints` the host defers the tools without a preload
hint, and it would defer all of them without riglm: no proxy then costs what the host's search costs.

Token counts of model requests, as the providers of the models bill them, are in transcripts of clients.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

from riglm.domain import list_plan
from riglm.domain.exposure import Exposure, Mode, Surface

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

    prompt_tokens: float = list_plan.PROMPT_TOKENS
    call_tokens: float = list_plan.CALL_TOKENS
    output_tokens: float = list_plan.OUTPUT_TOKENS
    cached_share: float = 1.0
    written_share: float = 1.0
    own_requests: float = 0.0


DEFAULT_SIZES: Final = SessionSizes()

CODING_AGENT: Final = SessionSizes(prompt_tokens=20_000, call_tokens=2_000)
"""The sizes of a coding agent, whose instructions and results are longer."""


class SessionPrice:
    """The price of one session's model requests, added up request by request.

    `list` has the tokens of the tool list that their prompts begin with, and a key of its tools.
    """

    def __init__(self, prices: list_plan.Prices, sizes: SessionSizes = DEFAULT_SIZES, list_tokens: float = 0.0) -> None:
        self.total = 0.0
        self.requests = 0
        self.list: tuple[float, object] = (list_tokens, None)
        self._prices = prices
        self._sizes = sizes
        self._messages = float(sizes.prompt_tokens)
        self._cached_list: object = None
        self._cached = 0.0

    def add(self, growth: float, requests: int = 1) -> None:
        """Add model requests, each of which adds `growth` tokens to the messages."""
        if not requests:
            return
        prices, sizes = self._prices, self._sizes
        first = self.list[0] + self._messages
        last = first + growth * (requests - 1)
        prompts = requests * (first + last) / 2
        repeated = prompts - last + (self._cached if self.list == self._cached_list else 0.0)
        cached = sizes.cached_share * repeated
        uncached_price = sizes.written_share * prices.cache_write + (1.0 - sizes.written_share)
        self.total += prices.cached_input * cached + uncached_price * (prompts - cached)
        self.total += prices.output * sizes.output_tokens * requests
        self.requests += requests
        self._messages += growth * requests
        self._cached_list, self._cached = self.list, last


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Prices and numbers of the model requests of sessions; prices are in tokens of uncached input."""

    sessions: int = 0
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

    def rounded_prices(self) -> dict[str, float | None]:
        """Return both relative prices, with three decimals."""
        prices = {"price": self.price, "price_of_search": self.price_of_search}
        return {name: None if price is None else round(price, 3) for name, price in prices.items()}

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(Cost)})


class SessionCost:
    """Prices one session from its lists, the results of its searches, and its calls, given in their order.

    `mode` is that of the first list that has a price, `off` before it. Calls of tools that a list in shadow mode would
    have hidden, or that the host defers, are taken to need a search, once for each tool.
    """

    def __init__(self, prices: list_plan.Prices, sizes: SessionSizes = DEFAULT_SIZES) -> None:
        self.mode: Mode = "off"
        self._sizes = sizes
        self._riglm, self._no_proxy = SessionPrice(prices, sizes), SessionPrice(prices, sizes)
        self._host_search = SessionPrice(prices, sizes, list_plan.HOST_LIST_TOKENS)
        self._list: Exposure | None = None
        self._definition = 0.0
        self._used: set[str] = set()
        self._found: set[str] = set()
        self._calls = 0

    def shown(self, exposure: Exposure) -> None:
        """Add a list, or the result of a search or of a new context; a list that was not selected has no price."""
        if not exposure.is_list:
            self._search(list_plan.RESULT_OVERHEAD * exposure.tokens_shown)
            return
        self._list = None if exposure.mode == "off" else exposure
        if self._list is None:
            return
        self.mode = exposure.mode if self.mode == "off" else self.mode
        names = frozenset(exposure.shown)
        self._riglm.list = exposure.tokens_shown + (list_plan.HOST_LIST_TOKENS if self._is_deferred else 0), names
        self._no_proxy.list = exposure.tokens_all, names.union(exposure.hidden)
        self._definition = exposure.tokens_all / max(1, len(exposure.shown) + len(exposure.hidden))

    def searched_by_host(self) -> None:
        """Add a search of the host for a tool that it defers although riglm lists it."""
        self._search(list_plan.HOST_SEARCH_RESULTS * self._definition)

    def called(self, tool: str) -> None:
        """Add a call of an upstream tool; calls before the first list have no price."""
        if self._list is None:
            return
        self._calls += 1
        if self._calls == 1:
            self._work(round(self._sizes.own_requests) // 2)
        if tool not in self._used:
            self._used.add(tool)
            self._host_search.add(list_plan.SEARCH_TOKENS + list_plan.HOST_SEARCH_RESULTS * self._definition)
        is_hidden = tool not in self._list.shown and (self._is_deferred or self._list.mode == "shadow")
        if is_hidden and tool not in self._found:
            self._found.add(tool)
            if self._is_deferred:
                self.searched_by_host()
            else:
                self._search(list_plan.RESULT_OVERHEAD * SHADOW_SEARCH_RESULTS * self._definition)
        self._work(1)

    def finish(self) -> Cost | None:
        """Add the last request and return the cost; None if no call had a price. To be called once."""
        if not self._calls:
            return None
        own_requests = round(self._sizes.own_requests)
        self._work(own_requests - own_requests // 2 + 1)
        no_proxy = self._host_search if self._is_deferred else self._no_proxy
        return Cost(
            sessions=1,
            riglm=self._riglm.total,
            no_proxy=no_proxy.total,
            host_search=self._host_search.total,
            riglm_requests=self._riglm.requests,
            no_proxy_requests=no_proxy.requests,
            host_search_requests=self._host_search.requests,
        )

    @property
    def _is_deferred(self) -> bool:
        """True if the host defers the tools of the list that have no preload hint."""
        return self._list is not None and self._list.surface == Surface.HINTS

    def _work(self, requests: int) -> None:
        for price in (self._riglm, self._no_proxy, self._host_search):
            price.add(self._sizes.call_tokens, requests)

    def _search(self, result_tokens: float) -> None:
        if self._list is not None:
            self._riglm.add(list_plan.SEARCH_TOKENS + result_tokens)


class RequestTokens(NamedTuple):
    """The tokens of one model request.

    `cached` were read from the cache, `written` were written to it, and `uncached` are all other input tokens.
    `output` includes those of reasoning.
    """

    uncached: int
    cached: int
    written: int
    output: int

    @property
    def prompt(self) -> int:
        """Return the number of input tokens."""
        return self.uncached + self.cached + self.written


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """The token counts of one session in a transcript.

    `id` is derived from its first request, so that copies of a session have the same; the one with the most requests is
    stored. `client` is the name that the client gives itself; `client_id` and `principal` are keyed hashes. `calls` is
    the number of calls of MCP tools. The counts of `RequestTokens` are sums over all `requests`, `first_prompt` is the
    prompt of the first request. `repeated` is the sum of the prompts that a request followed, and `reused` the part of
    it that the following request read from the cache. `started_at` is in seconds since the epoch.
    """

    id: UUID
    session_id: UUID
    client: str
    client_id: str
    principal: str
    started_at: float
    calls: int
    requests: int
    uncached: int
    cached: int
    written: int
    output: int
    first_prompt: int
    repeated: int
    reused: int

    @classmethod
    def from_requests(cls, requests: Sequence[RequestTokens], **session: Any) -> Self:
        """Return the counts of requests, at least one, in their order; `session` are all other fields."""
        uncached, cached, written, output = map(sum, zip(*requests, strict=True))
        return cls(
            **session,
            requests=len(requests),
            uncached=uncached,
            cached=cached,
            written=written,
            output=output,
            first_prompt=requests[0].prompt,
            repeated=sum(each.prompt for each in requests[:-1]),
            reused=sum(min(previous.prompt, each.cached) for previous, each in pairwise(requests)),
        )

    @property
    def prompts(self) -> int:
        """Return the number of input tokens of all requests."""
        return self.uncached + self.cached + self.written

    def billed_price(self, prices: list_plan.Prices) -> float:
        """Return the price of the counted tokens, in tokens of uncached input."""
        read_and_written = prices.cached_input * self.cached + prices.cache_write * self.written
        return self.uncached + read_and_written + prices.output * self.output


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientBill:
    """The token usage of one client's sessions, each with the tokens of the tool list that the client sent."""

    client: str
    sessions: tuple[tuple[TokenUsage, float], ...]

    def total(self, count: str) -> int:
        """Return the sum of a count over the sessions."""
        return sum(getattr(usage, count) for usage, _ in self.sessions)

    def billed_price(self, prices: list_plan.Prices) -> float:
        """Return the price of the counted tokens, in tokens of uncached input."""
        return sum(usage.billed_price(prices) for usage, _ in self.sessions)

    def modeled_price(self, prices: list_plan.Prices, sizes: SessionSizes) -> float:
        """Return the price of as many model requests in sessions of these sizes, with the same tool lists."""
        return sum(_price_requests(prices, sizes, usage.requests, tokens) for usage, tokens in self.sessions)

    @property
    def sizes(self) -> SessionSizes:
        """Return the sizes with which the price model counts the same input and output tokens for all requests.

        A size that no request shows is the default: the growth of a session, if no session has a second request.
        """
        requests, default = self.total("requests"), DEFAULT_SIZES
        first = sum(usage.requests * usage.first_prompt for usage, _ in self.sessions)
        lists = sum(usage.requests * tokens for usage, tokens in self.sessions)
        steps = sum(usage.requests * (usage.requests - 1) / 2 for usage, _ in self.sessions)
        repeated, uncached = self.total("repeated"), self.total("uncached") + self.total("written")
        own = [max(0, usage.requests - 1 - usage.calls) for usage, _ in self.sessions if usage.calls]
        return SessionSizes(
            prompt_tokens=max(0.0, first - lists) / requests,
            call_tokens=max(0, self.total("prompts") - first) / steps if steps else default.call_tokens,
            output_tokens=self.total("output") / requests,
            cached_share=self.total("reused") / repeated if repeated else default.cached_share,
            written_share=self.total("written") / uncached if uncached else default.written_share,
            own_requests=sum(own) / len(own) if own else default.own_requests,
        )


def _price_requests(prices: list_plan.Prices, sizes: SessionSizes, requests: int, list_tokens: float) -> float:
    price = SessionPrice(prices, sizes, list_tokens)
    price.add(sizes.call_tokens, requests)
    return price.total
