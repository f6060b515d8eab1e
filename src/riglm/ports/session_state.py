"""What several riglm processes know of their sessions together."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from typing import Final, Protocol, Self, runtime_checkable

_current: Final[ContextVar["TimeBudget | None"]] = ContextVar("riglm-patience", default=None)


class TimeBudget:
    """What is left of a request's time for shared state; as a context, what is asked inside it draws from it."""

    def __init__(self) -> None:
        """Nothing was spent yet."""
        self.spent = 0
        """Slices of the deadline; their length is set by the code that waits for the state."""
        self._tokens: list[Token[TimeBudget | None]] = []

    def __enter__(self) -> Self:
        self._tokens.append(_current.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._tokens.pop())

    @classmethod
    def current(cls) -> "TimeBudget":
        """That of the request which is being served, or a new one outside of requests."""
        return _current.get() or cls()


@runtime_checkable
class SessionStatePort(Protocol):
    """Values under keys, each for a time, and news for every process.

    Everything is bounded by a short timeout. While the state is unavailable, reading raises `StateUnavailableError` at
    once; writes and messages are queued, up to a limit, and sent when it is available again.
    """

    async def take(self, keys: Sequence[str], seconds: float) -> list[bytes | None]:
        """Return the values under these keys, in order, None where there is none; all are kept for `seconds` from now.

        Raises:
            StateUnavailableError: the state cannot be reached in time.
        """

    async def there(self, keys: Sequence[str]) -> list[bool]:
        """Whether there are values under these keys, which changes nothing for how long they stay.

        Raises:
            StateUnavailableError: the state cannot be reached in time.
        """

    async def claim(self, key: str, value: bytes, seconds: float) -> bytes:
        """The value under a key, which is this one if there was none.

        Raises:
            StateUnavailableError: the state cannot be reached in time.
        """

    async def swap(self, key: str, before: bytes, value: bytes, seconds: float) -> bytes | None:
        """Set a value for `seconds` if the current one is `before` (None: if there is none). Returns None on success.

        Otherwise what is there instead, and nothing changes: another process was faster.

        Raises:
            StateUnavailableError: the state cannot be reached in time; the value may be there all the same, now or
            later.
        """

    async def number(self, key: str, beyond: int, seconds: float) -> int:
        """Return a number greater than `beyond` that no process got under this key, whose expiry starts again.

        Raises:
            StateUnavailableError: the state cannot be reached in time.
        """

    async def keep(self, key: str, value: bytes, seconds: float) -> None:
        """Set a value for `seconds`; never raises."""

    async def drop(self, keys: Sequence[str]) -> None:
        """Let values go; never raises."""

    async def notify(self, news: bytes) -> None:
        """Publish a message to all processes, including this one; never raises."""

    async def returned(self, seconds: float) -> bool:
        """True if the state is available; one that failed less than `seconds` ago is waited for."""

    def listen(self, listener: Callable[[bytes], None]) -> None:
        """Call `listener` with all messages from now on, in the order in which they were published."""

    async def __aenter__(self) -> Self:
        """Open what is needed; a state that cannot be reached is tried again later."""

    async def __aexit__(self, *_: object) -> None:
        """Send what is queued within the timeout, and close everything."""
