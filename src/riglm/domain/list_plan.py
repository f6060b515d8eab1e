"""Which tools a list holds, and which definitions a result carries: those whose expected saving exceeds their price.

A tool that is needed and not listed costs a search detour: one more model request, its output, and the definition in
the search result. Carrying a tool costs its tokens, written to the cache once and read with every later request.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from riglm.domain.usage import Usage

PROMPT_TOKENS: Final = 6_000
"""Estimated tokens of the system prompt and the first message."""

CALL_TOKENS: Final = 450
"""Estimated tokens that a tool call and its result add to the conversation."""

SEARCH_TOKENS: Final = 120
"""Estimated tokens of a search request and its message, without the definitions in the result."""

RESULT_OVERHEAD: Final = 1.2
"""Tokens of a definition in a result relative to the definition in a list: it is JSON inside a JSON string."""

HOST_SEARCH_RESULTS: Final = 5
"""Definitions in a result of the host's search."""

OUTPUT_TOKENS: Final = 80
"""Estimated output tokens of one model request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices per token relative to uncached input.

    `extra_request` is what one avoided model request is worth in addition to its tokens, because the user waits for it.
    """

    cached_input: float = 0.1
    cache_write: float = 1.25
    output: float = 5.0
    extra_request: float = 1_500.0

    def added(self, tokens: float, requests: float) -> float:
        """Return the price of adding tokens to a prompt that `requests` later requests read from the cache."""
        return tokens * (self.cache_write + self.cached_input * requests)

    def detour(self, prompt_tokens: float, requests: float) -> float:
        """Return the price of finding a tool by search, without the definitions in the result.

        `prompt_tokens` is the size of the prompt at that time, `requests` the number of requests that follow.
        """
        request = self.cached_input * prompt_tokens + self.output * OUTPUT_TOKENS + self.extra_request
        return request + self.added(SEARCH_TOKENS, requests)

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

COLD_USAGE: Final = Usage(evidence=0, probabilities={}, requests=12.0, distinct_tools=9.0)
"""What is assumed of a session before anything was learned."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCosts:
    """The estimated tokens of each candidate's definition, and the prices they are weighed with.

    `result_tokens` are those of the definitions in a search result, None if it has only that of the tool.
    """

    tokens: Mapping[str, float]
    prices: Prices
    result_tokens: float | None = None

    @property
    def next_to_search(self) -> "ToolCosts":
        """Return the same for a host's search, where an avoided request is worth no more than its tokens."""
        mean = sum(self.tokens.values()) / max(1, len(self.tokens))
        prices = replace(self.prices, extra_request=0.0)
        return replace(self, prices=prices, result_tokens=HOST_SEARCH_RESULTS * mean)

    def paying(self, probabilities: Mapping[str, float], requests: float) -> list[str]:
        """Return the tools whose listing pays in a session with `requests` requests, the largest gain first."""
        gains = {
            tool: self._gain(tool, share, requests) for tool, share in probabilities.items() if tool in self.tokens
        }
        return sorted((tool for tool, gain in gains.items() if gain > 0), key=lambda tool: (-gains[tool], tool))

    def sendable(self, probabilities: Mapping[str, float], usage: Usage, calls: int, limit: int) -> list[str]:
        """Return at most `limit` tools whose definition pays in a result after `calls` calls, the likeliest first."""
        left = max(usage.requests - calls, usage.requests * _MIN_REMAINING_SHARE)
        prompt = _MEAN_LIST_TOKENS + PROMPT_TOKENS + CALL_TOKENS * (calls + left / 2)
        detour = self.prices.detour(prompt, left / 2)
        chosen = []
        for tool, share in sorted(probabilities.items(), key=lambda item: (-item[1], item[0])):
            tokens = self.tokens.get(tool, 0.0) * RESULT_OVERHEAD
            saving = share * (detour + self.prices.added(tokens, left / 2))
            if tool in self.tokens and saving > self.prices.added(tokens, left):
                chosen.append(tool)
        return chosen[:limit]

    def whole_price(self, requests: float) -> float:
        """Return the price of listing every candidate."""
        return self.prices.added(sum(self.tokens.values()), requests)

    def short_price(self, tools: Collection[str], usage: Usage, own_tokens: float) -> float:
        """Return the expected price of listing some candidates, the detours to the others included."""
        missing = _missing(tools, usage)
        listed = sum(self.tokens[tool] for tool in tools) + own_tokens
        hidden = [tokens for tool, tokens in self.tokens.items() if tool not in tools]
        mean = sum(hidden) / len(hidden) * RESULT_OVERHEAD if hidden else 0.0
        half = usage.requests / 2
        prompt = listed + PROMPT_TOKENS + CALL_TOKENS * half
        detour = self.prices.detour(prompt, half) + self.prices.added(mean, half)
        return self.prices.added(listed, usage.requests + missing) + missing * detour

    def context_pays(self, tools: Collection[str], usage: Usage) -> bool:
        """Return True if set_context, called once, avoids detours that cost more than it does."""
        prompt = _MEAN_LIST_TOKENS + PROMPT_TOKENS
        avoided = _AVOIDED_BY_CONTEXT * _missing(tools, usage)
        return avoided * self.prices.detour(prompt, usage.requests / 2) > self.prices.detour(prompt, usage.requests)

    def _gain(self, tool: str, share: float, requests: float) -> float:
        half = requests / 2
        prompt = _MEAN_LIST_TOKENS + PROMPT_TOKENS + CALL_TOKENS * half
        tokens = self.tokens[tool]
        result = tokens * RESULT_OVERHEAD if self.result_tokens is None else self.result_tokens
        found = self.prices.detour(prompt, half) + self.prices.added(result, half)
        return share * found - self.prices.added(tokens, requests)


def _missing(tools: Collection[str], usage: Usage) -> float:
    """Return how many tools a session is expected to need that are not in the list."""
    return max(0.0, usage.distinct_tools - sum(usage.probabilities.get(tool, 0.0) for tool in tools))


def cheapest_list(
    costs: ToolCosts,
    usage: Usage,
    kept: frozenset[str],
    order: Sequence[str],
    bounds: tuple[int, int],
    own_tokens: float,
) -> frozenset[str] | None:
    """Return the tools whose listing pays, or None if listing all is not dearer.

    `kept` are always listed and do not count. `order` has all candidates, the likeliest first among equals; it fills
    the list up to the lower of the `bounds`. `own_tokens` are what the meta-tools take.
    """
    least, most = bounds
    probabilities = {tool: share for tool, share in usage.probabilities.items() if tool not in kept}
    chosen = costs.paying(probabilities, usage.requests)[:most]
    tools = filled(chosen, kept, order, least)
    is_whole = len(tools) == len(costs.tokens)
    if is_whole or costs.short_price(tools, usage, own_tokens) >= costs.whole_price(usage.requests):
        return None
    return tools


def covering_list(
    usage: Usage, kept: frozenset[str], order: Sequence[str], bounds: tuple[int, int], coverage: float
) -> frozenset[str] | None:
    """Return the fewest tools that hold a share of the expected need, within bounds; None if these are all."""
    least, most = bounds
    shares = {tool: usage.probabilities[tool] for tool in order if tool in usage.probabilities and tool not in kept}
    enough, held = coverage * sum(shares.values()), 0.0
    chosen: list[str] = []
    for tool in sorted(shares, key=lambda tool: (-shares[tool], tool)):
        if len(chosen) >= most or held >= enough:
            break
        chosen.append(tool)
        held += shares[tool]
    tools = filled(chosen, kept, order, least)
    return None if len(tools) == len(order) else tools


def filled(chosen: Iterable[str], kept: frozenset[str], order: Sequence[str], least: int) -> frozenset[str]:
    """Return the kept and chosen tools, with the first of `order` until `least` are chosen."""
    tools = dict.fromkeys(chosen)
    for tool in order:
        if len(tools) >= least:
            break
        if tool not in kept:
            tools[tool] = None
    return kept.union(tools)
