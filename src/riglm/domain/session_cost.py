"""What a session's model requests cost through riglm, without a proxy, and with the tool search of a host.

Every call and every search is one model request, and one more request ends the session. Prices follow `Prices` and
`SessionPrice`. The host's search defers every tool: each tool that is new to the session takes one more request, and
its result adds definitions to the conversation. On the surface `hints` the host defers the tools without a preload
hint, and it would defer all of them without riglm: no proxy then costs what the host's search costs.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final

from riglm.domain.exposure import Exposure, Mode, Surface
from riglm.domain.list_plan import (
    CALL_TOKENS,
    HOST_SEARCH_RESULTS,
    RESULT_OVERHEAD,
    SEARCH_TOKENS,
    Prices,
    SessionPrice,
)

HOST_LIST_TOKENS: Final = 300
"""Estimated tokens of a host's own search tool, the only tool in its list."""

SHADOW_SEARCH_RESULTS: Final = 3
"""Definitions in a result of riglm's search where shadow mode has to assume one."""

MAX_SESSIONS: Final = 1_000
"""Number of the latest sessions that figures are of, unless another number is given."""

MAX_CALLS: Final = 50_000
"""Number of calls that figures are of: sessions before the latest ones that reach it are left out."""

MIN_PRICED_SESSIONS: Final = 2
"""Of fewer sessions no price is reported: one session says nothing of others."""


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

    def __init__(self, prices: Prices) -> None:
        self._riglm = SessionPrice(prices)
        self._no_proxy = SessionPrice(prices)
        self._host_search = SessionPrice(prices)
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
        self._request()
        for arm in (self._riglm, self._no_proxy, self._host_search):
            arm.messages += CALL_TOKENS

    def finish(self) -> Cost | None:
        """Add the last request and return the cost; None if no call had a price. To be called once."""
        if not self._calls:
            return None
        self._request()
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

    def _request(self) -> None:
        self._riglm.request(*self._riglm_list)
        self._no_proxy.request(*self._whole_list)
        self._host_search.request(HOST_LIST_TOKENS, None)

    def _result(self, tokens: float) -> None:
        if self._list is not None:
            self._riglm.request(*self._riglm_list)
            self._riglm.messages += SEARCH_TOKENS + RESULT_OVERHEAD * tokens
