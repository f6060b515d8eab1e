"""What several riglm processes know of their sessions together."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self


class SessionStatePort(Protocol):
    """Values under keys, each for a time, and news for every process.

    Everything is bounded by a short deadline. While the state cannot be reached, reading raises
    `StateUnavailableError` at once; what is kept, let go or told is noted, and told when the state is back, as far as
    there is room.
    """

    @abstractmethod
    async def take(self, keys: Sequence[str], seconds: float) -> list[bytes | None]:
        """Return the values under these keys, in order, None where there is none; all are kept for `seconds` from now.

        Raises:
            StateUnavailableError: the state cannot be reached in time.
        """

    @abstractmethod
    async def there(self, keys: Sequence[str]) -> list[bool]:
        """Whether there are values under these keys, which changes nothing for how long they stay.

        Raises:
            StateUnavailableError: the state cannot be reached in time.
        """

    @abstractmethod
    async def claim(self, key: str, value: bytes, seconds: float) -> bytes:
        """The value under a key, which is this one if there was none.

        Raises:
            StateUnavailableError: the state cannot be reached in time.
        """

    @abstractmethod
    async def swap(self, key: str, before: bytes, value: bytes, seconds: float) -> bytes | None:
        """Put a value in the place of `before`, or where there is none, for so long; None when that was done.

        Otherwise what is there instead, and nothing changes: another process was faster.

        Raises:
            StateUnavailableError: the state cannot be reached in time; the value may be there all the same, now or
            later.
        """

    @abstractmethod
    async def number(self, key: str, beyond: int, seconds: float) -> int:
        """A number greater than `beyond` that nobody was given under this key, which is kept for so long from now.

        Raises:
            StateUnavailableError: the state cannot be reached in time.
        """

    @abstractmethod
    async def keep(self, key: str, value: bytes, seconds: float) -> None:
        """Put a value in the place of the one before, for so long; never raises."""

    @abstractmethod
    async def drop(self, keys: Sequence[str]) -> None:
        """Let values go; never raises."""

    @abstractmethod
    async def tell(self, news: bytes) -> None:
        """Let all processes hear of something, this one too; never raises."""

    @abstractmethod
    async def returned(self, seconds: float) -> bool:
        """Whether the state can be reached; one that went away less than so many seconds ago is waited for."""

    @abstractmethod
    def listen(self, listener: Callable[[bytes], None]) -> None:
        """Call `listener` with all news from now on, in the order in which they were told."""

    @abstractmethod
    async def __aenter__(self) -> Self:
        """Open what is needed; a state that cannot be reached is tried again later."""

    @abstractmethod
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close everything, after what is still to be told, as far as there is time."""
