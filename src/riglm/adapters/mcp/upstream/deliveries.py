"""HTTP exchanges that no client waits for, each with a timeout."""

import asyncio
from collections.abc import Callable

from riglm.adapters.mcp.wire.http_client import Exchange


class Deliveries:
    """Lets every exchange go after a while, and all of them when the link closes."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[Exchange, tuple[asyncio.TimerHandle, Callable[[], None] | None]] | None = None
        """None when empty: most links are idle, and there may be very many."""

    def keep(self, exchange: Exchange, seconds: float, on_drop: Callable[[], None] | None = None) -> None:
        """Set the timeout of an exchange; `on_drop` is called if it expires."""
        timer = asyncio.get_running_loop().call_later(seconds, self._drop, exchange)
        if self._kept is None:
            self._kept = {}
        self._kept[exchange] = (timer, on_drop)

    def over(self, exchange: Exchange) -> None:
        """An exchange came to its end by itself."""
        kept = self._take(exchange)
        if kept is not None:
            kept[0].cancel()

    def close(self) -> None:
        """Let all of them go."""
        kept, self._kept = self._kept, None
        for exchange, (timer, _) in (kept or {}).items():
            timer.cancel()
            exchange.abort()

    def _drop(self, exchange: Exchange) -> None:
        kept = self._take(exchange)
        exchange.abort()
        if kept is not None and kept[1] is not None:
            kept[1]()

    def _take(self, exchange: Exchange) -> tuple[asyncio.TimerHandle, Callable[[], None] | None] | None:
        if self._kept is None:
            return None
        kept = self._kept.pop(exchange, None)
        if not self._kept:
            self._kept = None
        return kept
