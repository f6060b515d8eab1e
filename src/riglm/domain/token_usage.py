"""Token counts of model requests, as the providers of the models bill them. Transcripts of clients contain them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Self
from uuid import UUID

from riglm.domain.list_plan import Prices
from riglm.domain.session_cost import DEFAULT_SIZES, SessionPrice, SessionSizes


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

    def billed_price(self, prices: Prices) -> float:
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

    def billed_price(self, prices: Prices) -> float:
        """Return the price of the counted tokens, in tokens of uncached input."""
        return sum(usage.billed_price(prices) for usage, _ in self.sessions)

    def modeled_price(self, prices: Prices, sizes: SessionSizes) -> float:
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


def _price_requests(prices: Prices, sizes: SessionSizes, requests: int, list_tokens: float) -> float:
    price = SessionPrice(prices, sizes, list_tokens)
    price.add(sizes.call_tokens, requests)
    return price.total
