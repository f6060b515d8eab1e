"""What a session's model requests cost, with prompt caching taken into account.

All amounts are in tokens of uncached input. A prompt is the tool list, then the system prompt and the messages, so a
changed tool list writes the whole prompt to the cache again.
"""

from dataclasses import dataclass
from typing import Final

PROMPT_TOKENS: Final = 6_000
"""Estimated tokens of the system prompt and the first message."""

CALL_TOKENS: Final = 450
"""Estimated tokens that a tool call and its result add to the conversation."""

SEARCH_TOKENS: Final = 120
"""Estimated tokens of a search request and its message, without the definitions in the result."""

RESULT_OVERHEAD: Final = 1.2
"""Tokens of a definition in a result relative to the definition in a list: it is JSON inside a JSON string."""

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


class SessionPrice:
    """The price of one session's model requests, added up request by request."""

    def __init__(self, prices: Prices) -> None:
        self.total = 0.0
        self.requests = 0
        self.messages = float(PROMPT_TOKENS)
        """Tokens of the system prompt and the messages so far."""
        self._prices = prices
        self._list: object = None
        self._cached = 0.0

    def request(self, list_tokens: float, list_key: object) -> None:
        """Add a model request whose prompt begins with a tool list; equal keys mean equal bytes."""
        prices, prompt = self._prices, list_tokens + self.messages
        cached = self._cached if self.requests and list_key == self._list else 0.0
        self.total += prices.cached_input * cached + prices.cache_write * (prompt - cached)
        self.total += prices.output * OUTPUT_TOKENS
        self._cached, self._list = prompt, list_key
        self.requests += 1
