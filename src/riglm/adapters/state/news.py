"""Notifications between processes, as a stream of the Redis server, so that a short interruption loses none."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from riglm.adapters.state.backlog import Command

FIELD: Final = b"news"
_MOST_KEPT: Final = 10_000
_KEPT_SECONDS: Final = 3_600.0
"""Several times what news may be old, and how far the clocks of machines may be apart."""

_BLOCK_MS: Final = 1_000
_GRACE_SECONDS: Final = 2.0
_RETRY_SECONDS: Final = 0.25
_READ: Final = ("XREAD", "COUNT", 100, "BLOCK", _BLOCK_MS, "STREAMS")
_BEGINNING: Final = b"0"
_log: Final = logging.getLogger("riglm.state")


def telling(stream: str, news: bytes) -> Command:
    """The command that adds news to a stream, and lets go of those that are old."""
    return ("XADD", stream, "MAXLEN", "~", _MOST_KEPT, "*", FIELD, news)


def tidying(stream: str) -> list[Command]:
    """Commands that remove old news, also where no new ones are sent for long."""
    oldest = max(0, int((time.time() - _KEPT_SECONDS) * 1000))
    return [("XTRIM", stream, "MINID", oldest), ("PEXPIRE", stream, int(_KEPT_SECONDS * 1000))]


class NewsReader:
    """Reads a stream on a separate connection, for as long as it runs."""

    def __init__(self, client: Redis, stream: str) -> None:
        self._client = client
        self._stream = stream
        self._last = _BEGINNING
        self._is_strange = False
        self._listeners: list[Callable[[bytes], None]] = []
        self._reading: asyncio.Task[None] | None = None

    def listen(self, listener: Callable[[bytes], None]) -> None:
        """One more listens."""
        self._listeners.append(listener)

    async def start(self, *, is_away: bool = False) -> None:
        """Read what is sent from now on; without the server, or if it `is_away`, what is sent once it is available."""
        self._last = b"%d-0" % int(time.time() * 1000)  # places in a stream are times of the server
        if not is_away:
            with contextlib.suppress(RedisError, OSError, TimeoutError, LookupError, TypeError):
                async with asyncio.timeout(_GRACE_SECONDS):
                    self._last = await self._newest()
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def close(self) -> None:
        """Read no more."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await self._client.aclose()

    async def _read(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_BLOCK_MS / 1000 + _GRACE_SECONDS):
                    await self._read_on()
                self._is_strange = False
            except ResponseError as error:
                self._warn_of(error)
                await asyncio.sleep(_RETRY_SECONDS)
            except (RedisError, OSError, TimeoutError):
                await asyncio.sleep(_RETRY_SECONDS)
            except Exception:  # noqa: BLE001  # what comes from outside must not end the reading
                _log.exception("news of other processes could not be read")
                await asyncio.sleep(_RETRY_SECONDS)

    async def _read_on(self) -> None:
        answer = await self._ask(*_READ, self._stream, self._last)
        if answer:
            self._heard(answer)
        elif _order(await self._newest()) < _order(self._last):
            self._last = _BEGINNING  # the stream restarted with a clock that is behind

    def _warn_of(self, error: ResponseError) -> None:
        if str(error).startswith("WRONGTYPE") and not self._is_strange:
            self._is_strange = True
            words = "news of other processes cannot be read: another hand wrote their key; remove it"
            _log.warning(words, extra={"key": self._stream, "reason": str(error)})

    async def _newest(self) -> bytes:
        newest = await self._ask("XREVRANGE", self._stream, "+", "-", "COUNT", 1)
        place: bytes = newest[0][0] if newest else _BEGINNING
        return place

    async def _ask(self, *command: str | bytes | int) -> Any:
        return await self._client.execute_command(*command)  # type: ignore[no-untyped-call]

    def _heard(self, answer: Any) -> None:
        for _, entries in answer or ():
            for place, fields in entries:
                self._last = place
                for name, news in zip(fields[::2], fields[1::2], strict=True):
                    for listener in self._listeners if name == FIELD else ():
                        listener(news)


def _order(place: bytes) -> tuple[int, ...]:
    """What sorts places in a stream."""
    return tuple(int(part) for part in place.split(b"-"))
