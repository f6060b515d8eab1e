"""What processes tell each other at once: sealed, and never heard by the one that told it."""

import time
from collections.abc import Callable
from typing import Final
from uuid import uuid4

import msgspec

from riglm.application.sharing.sealing import Sealer
from riglm.ports.session_state import SessionStatePort

_NAME: Final = "news"
_OLDEST_SECONDS: Final = 600.0
"""Older news are an accident, or somebody who repeats what was said."""

Hearing = Callable[[str, str], None]
"""Is told whom news are about, and what."""


class _Item(msgspec.Struct, frozen=True, array_like=True):
    sender: str
    at: float
    kind: str
    about: str
    what: str


class News:
    """Tells and hears, by kind."""

    def __init__(self, state: SessionStatePort, sealer: Sealer, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives seconds since the epoch."""
        self._state = state
        self._sealer = sealer
        self._clock = clock
        self._own = uuid4().hex
        self._hearing: dict[str, Hearing] = {}
        state.listen(self._heard)

    def on(self, kind: str, hearing: Hearing) -> None:
        """Tell `hearing` what other processes say of this kind."""
        self._hearing[kind] = hearing

    async def tell(self, kind: str, about: str, what: str) -> None:
        """Let the other processes know."""
        item = _Item(self._own, self._clock(), kind, about, what)
        await self._state.tell(self._sealer.seal(_NAME, msgspec.json.encode(item)))

    def _heard(self, news: bytes) -> None:
        plain = self._sealer.opened(_NAME, news)
        if plain is None:
            return
        try:
            item = msgspec.json.decode(plain, type=_Item)
        except (msgspec.MsgspecError, UnicodeError):
            self._sealer.reject("it is no news")
            return
        if item.sender != self._own and self._clock() - item.at < _OLDEST_SECONDS and item.kind in self._hearing:
            self._hearing[item.kind](item.about, item.what)
