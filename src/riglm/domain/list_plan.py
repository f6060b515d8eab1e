"""Which tools a list holds, and which definitions a result carries: those whose expected saving exceeds their price.

A tool that is needed and not listed costs a search detour: one more model request, its output, and the definition in
the search result. Carrying a tool costs its tokens, written to the cache once and read with every later request.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from riglm.domain.learning import Usage

PROMPT_TOKENS: Final = 6_000
"""Estimated tokens of the system prompt and the first message."""

CALL_TOKENS: Final = 450
"""Estimated tokens that a tool call and its result add to the conversation."""

SEARCH_TOKENS: Final = 120
"""Estimated tokens of a search request and its message, without the definitions in the result."""

RESULT_OVERHEAD: Final = 1.2
"""Tokens of a definition in a result relative to the definition in a list: it is JSON inside a JSON string."""

HOST_LIST_TOKENS: Final = 300
"""Estimated tokens of a host's own search tool, the only tool in its list."""

HOST_SEARCH_RESULTS: Final = 5
"""Definitions in a result of the host's search."""

OUTPUT_TOKENS: Final = 80
"""Estimated output tokens of one model request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices per token relative to uncached input.

    `search_reliability` is how likely a model searches for a tool that it needs and does not see, and finds it. If it
    does not, the session is taken to be lost.
    """

    cached_input: float = 0.1
    cache_write: float = 1.25
    output: float = 5.0
    search_reliability: float = 0.97

    def added(self, tokens: float, requests: float) -> float:
        """Return the price of adding tokens to a prompt that `requests` later requests read from the cache."""
        return tokens * (self.cache_write + self.cached_input * requests)

    def detour(self, prompt_tokens: float, requests: float) -> float:
        """Return the price of finding a tool by search, without the definitions in the result.

        `prompt_tokens` is the size of the prompt at that time, `requests` the number of requests that follow.
        """
        request = self.cached_input * prompt_tokens + self.output * OUTPUT_TOKENS
        return request + self.added(SEARCH_TOKENS, requests)

    def risk(self, prompt_tokens: float, requests: float) -> float:
        """Return (1 - `search_reliability`) times the price of a session: what hiding a needed tool puts at risk.

        `prompt_tokens` is the size of its first prompt; each of its `requests` adds a call to it.
        """
        conversation = self.added(prompt_tokens, requests) + requests * self.added(CALL_TOKENS, requests / 2)
        return (1 - self.search_reliability) * (conversation + self.output * OUTPUT_TOKENS * requests)

    def list_change(self, prompt_tokens: float, before: float, after: float, requests: float) -> float:
        """Return the price of replacing a list of `before` tokens by one of `after` tokens; negative if it saves.

        `prompt_tokens` is the size of the prompt without the list.
        """
        rewritten = (self.cache_write - self.cached_input) * (prompt_tokens + after)
        return rewritten + self.cached_input * (requests + 1) * (after - before)


UNSURE: Final = 0.3
"""Below this context confidence the context does not narrow the list."""

SURE: Final = 0.7
"""Above this context confidence the search is listed last."""

COLD_USAGE: Final = Usage(evidence=0, probabilities={}, requests=12.0, distinct_tools=0.0)
"""What is assumed of a session while nothing was learned."""

PRIOR_SESSIONS: Final = 3.0
"""Number of recorded sessions that the prior counts as."""

ALIKE: Final = 0.01
"""Probabilities that differ by no more than this share of the largest one do not make one tool likelier."""

EXPECTED_HITS: Final = 0.85
"""The share of the tools that a session needs which lists are filled to."""

_CAUTION: Final = 0.8
_WORTH_FILLING: Final = 0.1
_WORTH_COUNTING: Final = 0.02

SMALL_CATALOG: Final = 20
"""A catalog of no more tools is passed through while nothing was learned."""

FILLED_FROM: Final = 11
"""Number of recorded sessions from which a list is filled to its expected share of needed tools."""

_MIN_PRIOR, _MAX_PRIOR = 0.01, 0.12
_PRIOR_TOOLS: Final = 3.5
_MIN_PRIOR_TOOLS: Final = 3.0
_PRIOR_CATALOG: Final = 50.0
_MORE_TOOLS: Final = 1.2


def expected_usage(usage: Usage, prior: Mapping[str, float]) -> Usage:
    """Return the estimate for a catalog: the prior and what was recorded, weighted by the number of sessions.

    `prior` has the probability of every permitted tool while nothing was learned. A session needs 3.5 tools in a
    catalog of 50, 1.2 more for each e-fold larger one.
    """
    recorded = usage.evidence / (usage.evidence + PRIOR_SESSIONS)
    distinct = max(_MIN_PRIOR_TOOLS, _PRIOR_TOOLS + _MORE_TOOLS * math.log(max(len(prior), 1) / _PRIOR_CATALOG))
    return Usage(
        evidence=usage.evidence,
        probabilities=blended(usage.probabilities, prior, usage.evidence),
        requests=recorded * usage.requests + (1 - recorded) * COLD_USAGE.requests,
        distinct_tools=recorded * usage.distinct_tools + (1 - recorded) * distinct,
    )


def prior_probabilities(everyday: Mapping[str, float]) -> dict[str, float]:
    """Return the probability of tools while nothing was learned, from 0.01 to 0.12.

    `everyday` has every permitted tool and how likely it is an everyday utility.
    """
    return {tool: _MIN_PRIOR + (_MAX_PRIOR - _MIN_PRIOR) * weight for tool, weight in everyday.items()}


def blended(recorded: Mapping[str, float], prior: Mapping[str, float], sessions: float) -> dict[str, float]:
    """Return (sessions * recorded + 3 * prior) / (sessions + 3) for each tool of the prior.

    If nothing recorded makes one tool likelier than another, `recorded` is empty, and the prior decides.
    """
    share = sessions / (sessions + PRIOR_SESSIONS) if recorded else 0.0
    return {tool: share * recorded.get(tool, 0.0) + (1 - share) * before for tool, before in prior.items()}


META_TOOL_TOKENS: Final = 250
"""Estimated tokens of the meta-tools next to a list that hides something, without the index."""

_AVOIDED_BY_CONTEXT: Final = 1 / 5  # of the searches of a session, with 525 tools
_MEAN_LIST_TOKENS: Final = 2_000
_MIN_REMAINING_SHARE: Final = 1 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPlan:
    """The tools chosen for a list, before it is composed.

    `candidates` are the permitted tools that the choice was made from; `tools` is None if the list holds all of them.
    `search_first` puts the search before the tools, and `lists_context` lists set_context. `confidence` is the context
    confidence, 0 without a context; `predictor` is empty if nothing was predicted.
    """

    candidates: tuple[str, ...]
    tools: frozenset[str] | None = None
    search_first: bool = False
    lists_context: bool = True
    confidence: float = 0.0
    predictor: str = ""
    reason: str = ""

    @property
    def listed(self) -> frozenset[str]:
        """Return the names of the tools in the list."""
        return frozenset(self.candidates) if self.tools is None else self.tools


def _missing(tools: Collection[str], usage: Usage) -> float:
    """Return how many tools a session is expected to need that are not in the list."""
    return max(0.0, usage.distinct_tools - math.fsum(usage.probabilities.get(tool, 0.0) for tool in tools))


def extend_list(
    tools: frozenset[str], order: Iterable[str], is_taken: Callable[[frozenset[str], str], bool]
) -> frozenset[str]:
    """Return the tools with those of `order` up to the first further one that is not taken."""
    for tool in order:
        if tool in tools:
            continue
        if not is_taken(tools, tool):
            break
        tools |= {tool}
    return tools


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCosts:
    """The estimated tokens of each candidate's definition, and the prices they are weighed with."""

    tokens: Mapping[str, float]
    prices: Prices

    def paying(
        self, probabilities: Mapping[str, float], requests: float, *, has_host_search: bool = False
    ) -> list[str]:
        """Return the tools whose listing pays in a session with `requests` requests, the largest gain first.

        The search of a host is taken to be reliable, and its results have several definitions. Next to it a list must
        not be dearer than that search alone, also where probabilities are a quarter too high.
        """
        prompt = _MEAN_LIST_TOKENS + PROMPT_TOKENS
        risk, certainty = (0.0, _CAUTION) if has_host_search else (self.prices.risk(prompt, requests), 1.0)
        gains, host_result = dict[str, float](), self._host_result
        for tool, share in probabilities.items():
            if tokens := self.tokens.get(tool):
                result = host_result if has_host_search else tokens * RESULT_OVERHEAD
                saving = self._detour(_MEAN_LIST_TOKENS, result, 0, requests) + risk
                gains[tool] = certainty * share * saving - self.prices.added(tokens, requests)
        return sorted((tool for tool, gain in gains.items() if gain > 0), key=lambda tool: (-gains[tool], tool))

    def sendable(self, probabilities: Mapping[str, float], usage: Usage, calls: int, limit: int) -> list[str]:
        """Return at most `limit` tools whose definition pays in a result after `calls` calls, the likeliest first."""
        left = max(usage.requests - calls, usage.requests * _MIN_REMAINING_SHARE)
        risk = self.prices.risk(_MEAN_LIST_TOKENS + PROMPT_TOKENS + CALL_TOKENS * (calls + left / 2), left)
        chosen = []
        for tool, share in sorted(probabilities.items(), key=lambda item: (-item[1], item[0])):
            tokens = self.tokens.get(tool, 0.0) * RESULT_OVERHEAD
            saving = share * (self._detour(_MEAN_LIST_TOKENS, tokens, calls, left) + risk)
            if tool in self.tokens and saving > self.prices.added(tokens, left):
                chosen.append(tool)
        return chosen[:limit]

    def whole_price(self, requests: float) -> float:
        """Return the price of listing every candidate."""
        return self.prices.added(self._sum(self.tokens), requests)

    def short_price(self, tools: Collection[str], usage: Usage, own_tokens: float) -> float:
        """Return the expected price of listing some candidates, the detours to the others included."""
        hidden = self.tokens.keys() - tools
        result = self._sum(hidden) / max(1, len(hidden)) * RESULT_OVERHEAD
        return self._list_price(self._sum(tools) + own_tokens, result, _missing(tools, usage), usage.requests)

    def search_price(self, usage: Usage) -> float:
        """Return the expected price of a host's search that defers every candidate."""
        return self._list_price(HOST_LIST_TOKENS, self._host_result, usage.distinct_tools, usage.requests)

    def context_pays(self, tools: Collection[str], usage: Usage) -> bool:
        """Return True if set_context, called once, avoids detours that cost more than it does."""
        prompt = _MEAN_LIST_TOKENS + PROMPT_TOKENS
        avoided = _AVOIDED_BY_CONTEXT * _missing(tools, usage)
        return avoided * self.prices.detour(prompt, usage.requests / 2) > self.prices.detour(prompt, usage.requests)

    def change_pays(
        self, before: frozenset[str], after: frozenset[str], sent: set[str], missed: float, calls: int, requests: float
    ) -> bool:
        """Return True if replacing a list after `calls` calls saves more than it costs, with `requests` in all.

        It saves sending the definitions of new tools in results, unless they were `sent`. It costs writing the prompt
        again, and the detours to the tools that it no longer has, of which `missed` are expected to be needed.
        """
        messages, left = PROMPT_TOKENS + CALL_TOKENS * calls, max(1.0, requests - calls)
        change = self.prices.list_change(messages, self._sum(before), self._sum(after), left)
        detours = missed * self.prices.detour(messages, left / 2)
        return self.prices.added(self._sum(after - before - sent), left) > change + detours

    def cheapest_list(
        self, usage: Usage, kept: frozenset[str], order: Sequence[str], bounds: tuple[int, int], own_tokens: float
    ) -> frozenset[str]:
        """Return the tools whose listing pays, or all if listing all is not dearer.

        With enough evidence the likeliest of them come first, and further ones are added until the share
        `EXPECTED_HITS` of the tools that a session needs is expected in the list, while that is cheaper than listing
        all and than a host's search. Tools that are needed in fewer than one of ten sessions are not added for that.
        `kept` are always listed and do not count. `order` has all candidates, the likeliest first; it fills the list up
        to the lower of the `bounds`. `own_tokens` are what the meta-tools take.
        """
        everything, (least, most), shares = frozenset(self.tokens), bounds, usage.probabilities
        if not usage.evidence and len(everything) <= SMALL_CATALOG:
            return everything
        is_filled = usage.evidence >= FILLED_FROM
        paying = self.paying({tool: share for tool, share in shares.items() if tool not in kept}, usage.requests)
        if is_filled:
            paying.sort(key=lambda tool: -shares[tool])
        tools = extend_list(kept.union(paying[:most]), order, lambda some, _: len(some - kept) < least)
        whole = self.whole_price(usage.requests)
        if self.short_price(tools, usage, own_tokens) >= whole:
            return everything
        limit = min(whole, self.search_price(usage))

        def is_worth_filling(some: frozenset[str], tool: str) -> bool:
            return (
                _missing(some, usage) > (1 - EXPECTED_HITS) * usage.distinct_tools
                and len(some - kept) < most
                and shares.get(tool, 0.0) >= _WORTH_FILLING
                and self.short_price(some | {tool}, usage, own_tokens) < limit
            )

        return extend_list(tools, order, is_worth_filling) if is_filled else tools

    @property
    def _host_result(self) -> float:
        return HOST_SEARCH_RESULTS * self._sum(self.tokens) / max(1, len(self.tokens))

    def _sum(self, tools: Iterable[str]) -> float:
        return sum(self.tokens.get(tool, 0.0) for tool in tools)

    def _detour(self, list_tokens: float, result_tokens: float, calls: float, left: float) -> float:
        """Return the price of finding a tool by search halfway through the requests that are left."""
        prompt = list_tokens + PROMPT_TOKENS + CALL_TOKENS * (calls + left / 2)
        return self.prices.detour(prompt, left / 2) + self.prices.added(result_tokens, left / 2)

    def _list_price(self, list_tokens: float, result_tokens: float, searches: float, requests: float) -> float:
        """Return the price of a list in a session that searches for some tools."""
        detours = searches * self._detour(list_tokens, result_tokens, 0, requests)
        return self.prices.added(list_tokens, requests + searches) + detours


def covering_list(
    shares: Mapping[str, float], kept: frozenset[str], order: Sequence[str], bounds: tuple[int, int], coverage: float
) -> frozenset[str]:
    """Return the fewest tools, in the order, that hold a share of the sum of probabilities, within bounds.

    `order` has the likeliest tools first, and `kept` tools are listed in addition. Probabilities below 0.02 do not
    count: those of a large unused catalog would add up to a long list.
    """
    least, most = bounds
    enough = coverage * math.fsum(share for tool in {*order} if (share := shares.get(tool, 0.0)) >= _WORTH_COUNTING)

    def is_short(tools: frozenset[str], _: str) -> bool:
        chosen = tools - kept
        held = math.fsum(shares.get(tool, 0.0) for tool in chosen)
        return len(chosen) < least or (len(chosen) < most and held < enough)

    return extend_list(kept, order, is_short)
