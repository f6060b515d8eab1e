"""A look at the outside world that several checks go by."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from riglm.application.examining.check import aside

_Facts = TypeVar("_Facts")


class Once(Generic[_Facts]):
    """Looks once, aside, whoever asks first, and gives everybody what was found, or why nothing could be."""

    def __init__(self, look: Callable[[], _Facts]) -> None:
        """`look` blocks; it has not been called yet."""
        self._look = look
        self._looking: asyncio.Task[_Facts] | None = None

    async def facts(self) -> _Facts:
        """What was found; raises what the look raised."""
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(aside(self._look))
        return await asyncio.shield(self._looking)
