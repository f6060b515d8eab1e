"""One connection to a Redis server for all commands of a process, with a deadline for each.

What is asked while a round trip is under way goes together with the next one, so that many sessions need no more
connections than one. A server that is late, or slow again and again, is not used for a while: no caller waits for it.
"""

import asyncio
import contextlib
import logging
import random
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from riglm.domain.errors import StateUnavailableError
from riglm.ports.session_state import TimeBudget

Command = tuple[str | bytes | int, ...]
"""A command of the server, with its arguments."""

MAX_VALUES: Final = 10_000
"""Maximum number of values kept, those that were set first are dropped first."""

MAX_NEWS: Final = 1_000
"""Maximum number of news kept, the oldest are dropped first."""


class Backlog:
    """The last command for each key, and the news in their order; bounded."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._values: OrderedDict[str, Command] = OrderedDict()
        self._news: deque[Command] = deque(maxlen=MAX_NEWS)
        self.forgotten = 0

    def value(self, key: str, command: Command) -> None:
        """Keep a command that sets or removes the value of a key."""
        self._values.pop(key, None)
        self._values[key] = command
        if len(self._values) > MAX_VALUES:
            self._values.popitem(last=False)
            self.forgotten += 1

    def news(self, command: Command) -> None:
        """Keep news for this command."""
        self.forgotten += len(self._news) == MAX_NEWS
        self._news.append(command)

    def first(self, most: int) -> list[Command]:
        """The commands that come first, values before news, since news are about them."""
        return list(islice(chain(self._values.values(), self._news), most))

    def told(self, commands: list[Command]) -> None:
        """Remove changes that were sent, unless there is something newer."""
        done = set(map(id, commands))
        self._values = OrderedDict((key, one) for key, one in self._values.items() if id(one) not in done)
        self._news = deque((one for one in self._news if id(one) not in done), maxlen=MAX_NEWS)


_MAX_BATCH_SIZE: Final = 256
_INITIAL_BACKOFF: Final = 0.2
_MAX_BACKOFF: Final = 5.0
_STEADY_SECONDS: Final = 10.0
_TURNS: Final = 20
"""Maximum turns of the event loop until a received response is used; they take no time unless it is busy."""

_SLICES: Final = 10
"""Parts of the deadline, each of which ends only after those turns, so that a busy loop does not use it up."""
_SLOW_SLICES: Final = 3
_LAST: Final = 10
_MAX_SLOW: Final = 8
"""Number of slow round trips among the last ones after which the server counts as unavailable."""
_QUICK_TRIALS: Final = 3

_log: Final = logging.getLogger("riglm.state")


@dataclass(eq=False, slots=True)
class _Waiting:
    """Commands to send, the callers that wait, and what is done if they cannot be sent."""

    commands: Sequence[Command]
    answers: "asyncio.Future[list[Any]]"
    timeout_seconds: TimeBudget
    on_loss: Callable[[], None] | None = None


class RedisConnection:
    """Sends commands. Unavailable means that the server was late, slow or unreachable, and no trial succeeded since."""

    def __init__(self, client: Redis, place: str, deadline: float, on_return: Callable[[], Awaitable[None]]) -> None:
        """`place` names the server in the log; `on_return` is awaited when it answers again, before anything else."""
        self._client = client
        self._place = place
        self._deadline = deadline
        self._on_return = on_return
        self._waiting: list[_Waiting] = []
        self._under_way: list[_Waiting] = []
        self._slow: deque[bool] = deque(maxlen=_LAST)
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
            StateUnavailableError: the server is unavailable.
        """
        timeout_seconds = TimeBudget.current()
        if self.is_away or timeout_seconds.spent >= _SLICES:
            raise StateUnavailableError(f"{self._place} is unavailable")
        return await self._enqueue(commands, timeout_seconds).answers

    async def say(self, *commands: Command, on_loss: Callable[[], None]) -> None:
        """Send commands, and wait as long as there is patience; `on_loss` is called if they cannot be sent."""
        if self.is_away:
            on_loss()
            return
        waiting = self._enqueue(commands, TimeBudget.current(), on_loss)
        if waiting.timeout_seconds.spent < _SLICES:
            with contextlib.suppress(StateUnavailableError):
                await waiting.answers
        else:
            waiting.answers.cancel()

    def _enqueue(
        self, commands: Sequence[Command], timeout_seconds: TimeBudget, on_loss: Callable[[], None] | None = None
    ) -> _Waiting:
        loop = asyncio.get_running_loop()
        waiting = _Waiting(commands, loop.create_future(), timeout_seconds, on_loss)
        self._waiting.append(waiting)
        if self._sending is None:
            self._sending = loop.create_task(self._send())
        return waiting

    async def returned(self, seconds: float) -> bool:
        """Return True if the server responds again within `seconds` after it was lost, once it does."""
        if self._returning is not None:
            left = self._lost_at + seconds - asyncio.get_running_loop().time()
            await asyncio.wait({self._returning}, timeout=max(0.0, left))
        return not self.is_away

    async def try_now(self, *commands: Command) -> bool:
        """Send commands, even if the server counts as unavailable, apart from all others; return True if it was slow.

        Raises:
            StateUnavailableError: the server is unavailable.
        """
        try:
            return (await self._in_time(commands))[1]
        except (RedisError, OSError, TimeoutError) as error:
            raise StateUnavailableError(f"{self._place}: {error or 'no answer in time'}") from error

    def lost(self, error: Exception) -> None:
        """The server is unavailable from now on, until it responds to a trial."""
        if self.is_away:
            return
        loop = asyncio.get_running_loop()
        if loop.time() - self._back_at > _STEADY_SECONDS:
            self._failures = 0
        self._lost_at = loop.time()
        self._slow.clear()
        reason = str(error) or "no answer in time"
        _log.warning("shared state is unavailable: sessions stay with this process", extra=self._about(reason))
        self._returning = loop.create_task(self._return())
        refused, self._waiting = self._waiting, []
        self._refuse(refused, error)

    async def close(self) -> None:
        """Send nothing any more."""
        self._closed = True
        for task in (self._sending, self._returning):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._refuse(self._waiting, StateUnavailableError(f"{self._place}: closed"))
        await self._client.aclose()

    async def _send(self) -> None:
        """Send what waits, one round trip after the other."""
        try:
            while self._waiting and not self.is_away:
                batch, self._waiting = self._waiting[:_MAX_BATCH_SIZE], self._waiting[_MAX_BATCH_SIZE:]
                await self._send_one(batch)
        finally:
            self._sending = None

    async def _send_one(self, batch: list[_Waiting]) -> None:
        self._under_way = batch
        try:
            commands = [command for waiting in batch for command in waiting.commands]
            answers, is_slow = await self._in_time(commands, self._spend)
        except (RedisError, OSError, TimeoutError) as error:
            self._refuse(batch, error)
            self.lost(error)
        except asyncio.CancelledError as error:
            self._refuse(batch, error)
            raise
        else:
            told = iter(answers)
            for waiting in batch:
                own = list(islice(told, len(waiting.commands)))
                if not waiting.answers.done():
                    waiting.answers.set_result(own)
            self._judge(is_slow)
        finally:
            self._under_way = []

    def _judge(self, is_slow: bool) -> None:
        """Give a server up that is slow again and again."""
        self._slow.append(is_slow)
        if sum(self._slow) >= _MAX_SLOW:
            slow_ms = self._deadline * 1000 * _SLOW_SLICES / _SLICES
            self.lost(TimeoutError(f"most answers take more than {slow_ms:.0f} ms"))

    def _spend(self) -> None:
        """A slice of the deadline is over for all who wait; those without patience go on."""
        everybody = [*self._under_way, *self._waiting]
        for timeout_seconds in {waiting.timeout_seconds for waiting in everybody}:
            timeout_seconds.spent += 1
        for waiting in everybody:
            if waiting.timeout_seconds.spent >= _SLICES and not waiting.answers.done():
                waiting.answers.set_exception(StateUnavailableError(f"{self._place}: no answer in time"))

    def _refuse(self, refused: Sequence[_Waiting], cause: BaseException) -> None:
        for waiting in refused:
            if waiting.on_loss is not None:
                waiting.on_loss()
            if not waiting.answers.done():
                refusal = StateUnavailableError(f"{self._place}: {cause or 'no answer in time'}")
                refusal.__cause__ = cause
                waiting.answers.set_exception(refusal)

    async def _in_time(
        self, commands: Sequence[Command], on_slice: Callable[[], None] | None = None
    ) -> tuple[list[Any], bool]:
        """One round trip, and whether it was slow; an answer that is there, and waits to be looked at, is not late."""
        asking = asyncio.get_running_loop().create_task(self._round_trip(commands))
        asking.add_done_callback(lambda over: over.cancelled() or over.exception())  # may have no caller any more
        try:
            for passed in range(_SLICES):
                if await self._answered(asking):
                    return asking.result(), passed >= _SLOW_SLICES
                if on_slice is not None:
                    on_slice()
            raise TimeoutError(f"no answer in {self._deadline * 1000:.0f} ms")
        finally:
            asking.cancel()

    async def _answered(self, asking: "asyncio.Task[list[Any]]") -> bool:
        """Whether there is an answer within a slice of the deadline."""
        await asyncio.wait({asking}, timeout=self._deadline / _SLICES)
        for _ in range(_TURNS):
            if asking.done():
                return True
            await asyncio.sleep(0)
        return asking.done()

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
        """Try until the server responds, then send it what it missed."""
        while True:
            delay = min(_MAX_BACKOFF, _INITIAL_BACKOFF * 2**self._failures)
            self._failures = min(self._failures + 1, 10)
            await asyncio.sleep(delay * random.uniform(0.8, 1.2))  # noqa: S311  # spreads the processes
            try:
                if any([await self.try_now(("PING",)) for _ in range(_QUICK_TRIALS)]):
                    continue
                await self._on_return()
            except StateUnavailableError:
                continue
            except Exception:  # noqa: BLE001  # otherwise it would never be tried again
                _log.exception("what waited for shared state could not be sent", extra=self._about(""))
                continue
            self._back_at = asyncio.get_running_loop().time()
            self._returning = None
            _log.info("shared state is back", extra=self._about(""))
            return

    def _about(self, reason: str) -> dict[str, str]:
        return {"state": self._place, **({"reason": reason} if reason else {})}
