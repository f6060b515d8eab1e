"""HTTP exchanges that no client waits for: each may take its time, but not for ever."""

import asyncio
from collections.abc import Callable

from riglm.adapters.mcp.wire.http_client import Exchange


class Deliveries:
    """Lets every exchange go after a while, and all of them when the link closes."""

    def __init__(self) -> None:
        self._kept: dict[Exchange, tuple[asyncio.TimerHandle, Callable[[], None] | None]] = {}

    def keep(self, exchange: Exchange, seconds: float, on_drop: Callable[[], None] | None = None) -> None:
        """Give an exchange so many seconds; `on_drop` is called if it used them up."""
        timer = asyncio.get_running_loop().call_later(seconds, self._drop, exchange)
        self._kept[exchange] = (timer, on_drop)

    def over(self, exchange: Exchange) -> None:
        """An exchange came to its end by itself."""
        kept = self._kept.pop(exchange, None)
        if kept is not None:
            kept[0].cancel()

    def close(self) -> None:
        """Let all of them go."""
        kept, self._kept = self._kept, {}
        for exchange, (timer, _) in kept.items():
            timer.cancel()
            exchange.abort()

    def _drop(self, exchange: Exchange) -> None:
        _, on_drop = self._kept.pop(exchange)
        exchange.abort()
        if on_drop is not None:
            on_drop()
