"""One connection to a Redis server for all commands of a process, with a deadline for each.

What is asked while a round trip is under way goes together with the next one, so that many sessions need no more
connections than one. A server that is late is left alone for a while: nobody else waits for it.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from riglm.adapters.state.backlog import Command
from riglm.domain.errors import StateUnavailable

_MOST_AT_ONCE: Final = 256
_FIRST_DELAY: Final = 0.2
_LONGEST_DELAY: Final = 5.0
_STEADY_SECONDS: Final = 10.0
_TURNS: Final = 20
"""An answer that has come is taken within so many turns of the event loop, which take no time unless it is busy."""

_log: Final = logging.getLogger("riglm.state")
_Waiting = tuple[Sequence[Command], "asyncio.Future[list[Any]]"]


class Line:
    """Sends commands. Away means that the server was late or unreachable, and has not answered a trial since."""

    def __init__(self, client: Redis, place: str, deadline: float, on_return: Callable[[], Awaitable[None]]) -> None:
        """`place` names the server in the log; `on_return` is awaited when it answers again, before anything else."""
        self._client = client
        self._place = place
        self._deadline = deadline
        self._on_return = on_return
        self._waiting: list[_Waiting] = []
        self._sending: asyncio.Task[None] | None = None
        self._returning: asyncio.Task[None] | None = None
        self._lost_at = 0.0
        self._failures = 0
        self._back_at = 0.0
        self._closed = False

    @property
    def is_away(self) -> bool:
        """Whether nothing can be asked now."""
        return self._returning is not None or self._closed

    async def ask(self, *commands: Command) -> list[Any]:
        """The answers to commands, in their order; None to those that do not fit what is kept under their key.

        Raises:
            StateUnavailable: the server is away.
        """
        if self.is_away:
            raise StateUnavailable(f"{self._place} is away")
        loop = asyncio.get_running_loop()
        answers: asyncio.Future[list[Any]] = loop.create_future()
        self._waiting.append((commands, answers))
        if self._sending is None:
            self._sending = loop.create_task(self._send())
        return await answers

    async def returned(self, seconds: float) -> bool:
        """Whether the server answers again within so many seconds of when it was lost, once it does."""
        if self._returning is not None:
            left = self._lost_at + seconds - asyncio.get_running_loop().time()
            await asyncio.wait({self._returning}, timeout=max(0.0, left))
        return not self.is_away

    async def try_now(self, *commands: Command) -> list[Any]:
        """The answers to commands, whether the server is thought to be away or not, apart from all others.

        Raises:
            StateUnavailable: the server is away.
        """
        try:
            return await self._in_time(commands)
        except (RedisError, OSError, TimeoutError) as error:
            raise StateUnavailable(f"{self._place}: {error or 'no answer in time'}") from error

    def lost(self, error: Exception) -> None:
        """The server is away from now on, until it answers a trial."""
        if self.is_away:
            return
        loop = asyncio.get_running_loop()
        if loop.time() - self._back_at > _STEADY_SECONDS:
            self._failures = 0
        self._lost_at = loop.time()
        reason = str(error) or "no answer in time"
        _log.warning("shared state is away: sessions stay with this process", extra=self._about(reason))
        self._returning = loop.create_task(self._return())

    async def close(self) -> None:
        """Send nothing any more."""
        self._closed = True
        for task in (self._sending, self._returning):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._refuse(self._waiting, StateUnavailable(f"{self._place}: closed"))
        await self._client.aclose()

    async def _send(self) -> None:
        """Send what waits, one round trip after the other."""
        try:
            while self._waiting and not self.is_away:
                batch, self._waiting = self._waiting[:_MOST_AT_ONCE], self._waiting[_MOST_AT_ONCE:]
                await self._send_one(batch)
        finally:
            self._sending = None

    async def _send_one(self, batch: list[_Waiting]) -> None:
        try:
            answers = await self._in_time([command for commands, _ in batch for command in commands])
        except (RedisError, OSError, TimeoutError) as error:
            self.lost(error)
            rest, self._waiting = self._waiting, []
            self._refuse([*batch, *rest], error)
        except asyncio.CancelledError as error:
            self._refuse(batch, error)
            raise
        else:
            told = iter(answers)
            for commands, future in batch:
                own = list(islice(told, len(commands)))
                if not future.done():
                    future.set_result(own)

    def _refuse(self, waiting: Sequence[_Waiting], cause: BaseException) -> None:
        for _, future in waiting:
            if not future.done():
                refusal = StateUnavailable(f"{self._place}: {cause or 'no answer in time'}")
                refusal.__cause__ = cause
                future.set_exception(refusal)

    async def _in_time(self, commands: Sequence[Command]) -> list[Any]:
        """One round trip; an answer that is there, and waits for this process to look at it, is not late."""
        asking = asyncio.get_running_loop().create_task(self._round_trip(commands))
        asking.add_done_callback(lambda over: over.cancelled() or over.exception())  # nobody may be left to hear it
        try:
            await asyncio.wait({asking}, timeout=self._deadline)
            for _ in range(_TURNS):
                if asking.done():
                    break
                await asyncio.sleep(0)
            else:
                raise TimeoutError(f"no answer in {self._deadline * 1000:.0f} ms")
            return asking.result()
        finally:
            asking.cancel()

    async def _round_trip(self, commands: Sequence[Command]) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        answers = await pipeline.execute(raise_on_error=False)
        return [self._checked(answer) for answer in answers]

    def _checked(self, answer: Any) -> Any:
        if not isinstance(answer, Exception):
            return answer
        if isinstance(answer, ResponseError) and str(answer).startswith("WRONGTYPE"):
            _log.warning("ignored a key of shared state that riglm did not write", extra=self._about(str(answer)))
            return None
        raise answer

    async def _return(self) -> None:
        """Try until the server answers, then tell it what it missed."""
        while True:
            delay = min(_LONGEST_DELAY, _FIRST_DELAY * 2**self._failures)
            self._failures = min(self._failures + 1, 10)
            await asyncio.sleep(delay * random.uniform(0.8, 1.2))  # noqa: S311  # spreads the processes
            try:
                await self.try_now(("PING",))
                await self._on_return()
            except StateUnavailable:
                continue
            except Exception:  # noqa: BLE001  # or else nobody would ever try again
                _log.exception("what waited for shared state could not be told", extra=self._about(""))
                continue
            self._back_at = asyncio.get_running_loop().time()
            self._returning = None
            _log.info("shared state is back", extra=self._about(""))
            return

    def _about(self, reason: str) -> dict[str, str]:
        return {"state": self._place, **({"reason": reason} if reason else {})}
