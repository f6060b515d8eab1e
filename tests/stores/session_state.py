"""State of sessions in memory, for tests of processes that share it."""

import time
from collections.abc import Callable, Sequence
from typing import Self

from riglm.ports.session_state import SessionStatePort


class InMemorySessionState(SessionStatePort):
    """Never out of reach."""

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Nothing is kept yet; `monotonic` gives seconds."""
        self._values: dict[str, tuple[bytes, float]] = {}
        self._listeners: list[Callable[[bytes], None]] = []
        self._monotonic = monotonic

    async def take(self, keys: Sequence[str], seconds: float) -> list[bytes | None]:
        found = [self._value(key) for key in keys]
        for key, value in zip(keys, found, strict=True):
            if value is not None:
                self._values[key] = (value, self._monotonic() + seconds)
        return found

    async def there(self, keys: Sequence[str]) -> list[bool]:
        return [self._value(key) is not None for key in keys]

    async def claim(self, key: str, value: bytes, seconds: float) -> bytes:
        found = self._value(key)
        if found is None:
            await self.keep(key, value, seconds)
        return value if found is None else found

    async def swap(self, key: str, before: bytes, value: bytes, seconds: float) -> bytes | None:
        found = self._value(key)
        if found is not None and found != before:
            return found
        await self.keep(key, value, seconds)
        return None

    async def number(self, key: str, beyond: int, seconds: float) -> int:
        number = max(int(self._value(key) or 0), beyond) + 1
        await self.keep(key, b"%d" % number, seconds)
        return number

    async def keep(self, key: str, value: bytes, seconds: float) -> None:
        self._values[key] = (value, self._monotonic() + seconds)

    async def drop(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._values.pop(key, None)

    async def notify(self, news: bytes) -> None:
        for listener in self._listeners:
            listener(news)

    async def returned(self, seconds: float) -> bool:
        return True

    def listen(self, listener: Callable[[bytes], None]) -> None:
        self._listeners.append(listener)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Do nothing."""

    def _value(self, key: str) -> bytes | None:
        value, until = self._values.get(key, (None, 0.0))
        if value is not None and until <= self._monotonic():
            del self._values[key]
            return None
        return value
