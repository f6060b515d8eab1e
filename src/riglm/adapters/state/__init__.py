"""State of sessions in Redis or Valkey, for several riglm processes."""

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self
from urllib.parse import urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from riglm.adapters.state.redis_connection import Backlog, Command, RedisConnection
from riglm.domain.errors import ConfigurationError, StateUnavailableError
from riglm.domain.redaction import is_clearly_written, place_of_url
from riglm.ports.session_state import SessionStatePort

FIELD: Final = b"news"
_MAX_KEPT: Final = 10_000
_TTL_SECONDS: Final = 3_600.0
"""Several times what news may be old, and how far the clocks of machines may be apart."""

_BLOCK_MS: Final = 1_000
_GRACE_SECONDS: Final = 2.0
_RETRY_SECONDS: Final = 0.25
_READ: Final = ("XREAD", "COUNT", 100, "BLOCK", _BLOCK_MS, "STREAMS")
_BEGINNING: Final = b"0"
_log: Final = logging.getLogger("riglm.state")


class NewsReader:
    """Reads a stream on a separate connection, for as long as it runs."""

    def __init__(self, client: Redis, stream: str) -> None:
        self._client = client
        self._stream = stream
        self._last: bytes | None = None
        """The entry after which it reads; None until the server was available."""
        self._started_at = 0.0
        self._is_strange = False
        self._listeners: list[Callable[[bytes], None]] = []
        self._reading: asyncio.Task[None] | None = None

    def listen(self, listener: Callable[[bytes], None]) -> None:
        """One more listens."""
        self._listeners.append(listener)

    async def start(self, *, is_away: bool = False) -> None:
        """Read what is sent from now on, also if the server is unavailable or `is_away`."""
        self._started_at = time.monotonic()
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
                continue
            except ResponseError as error:
                self._warn_of(error)
            except (RedisError, OSError, TimeoutError):
                pass
            except Exception:  # noqa: BLE001  # what comes from outside must not end the reading
                _log.exception("news of other processes could not be read")
            await asyncio.sleep(_RETRY_SECONDS)

    async def _read_on(self) -> None:
        if self._last is None:
            self._last = min(await self._newest(), await self._start_place(), key=_order)
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

    async def _start_place(self) -> bytes:
        """The place in the stream at which this reader started, by the server's clock."""
        seconds, microseconds = map(int, await self._ask("TIME"))
        elapsed = time.monotonic() - self._started_at
        return b"%d-0" % max(0, seconds * 1000 + microseconds // 1000 - round(elapsed * 1000))

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


_BATCH_SIZE: Final = 200
_OPENING_SECONDS: Final = 2.0
_SWAP: Final = """
local found = redis.pcall('GET', KEYS[1])
if type(found) == 'string' and redis.sha1hex(found) ~= ARGV[1] then return found end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return false
"""
"""Compare and set in one step: a script, since the one connection cannot watch keys for many requests at once."""

_NUMBER: Final = """
local given = redis.pcall('GET', KEYS[1])
local number = math.max(type(given) == 'string' and tonumber(given) or 0, tonumber(ARGV[1])) + 1
if not (number < 2^53) then number = tonumber(ARGV[1]) + 1 end
redis.call('SET', KEYS[1], string.format('%.0f', number), 'PX', ARGV[2])
return number
"""
"""A counter that makes up for what was lost with the server, and for what another hand wrote there."""


_TRIM: Final = """
local oldest = math.max(0, redis.call('TIME')[1] * 1000 - ARGV[1])
return redis.call('XTRIM', KEYS[1], 'MINID', string.format('%.0f', oldest))
"""
"""Forget by the server's clock: a process whose clock is ahead would remove what others have not read."""


class RedisSessionState(SessionStatePort):
    """Values are keys with an expiry; news are entries of one stream. No answer is waited for beyond `deadline`."""

    def __init__(self, url: str, *, prefix: str = "riglm", deadline: float = 0.1) -> None:
        """The server at `url`; every key begins with `prefix`. `deadline` is in seconds.

        Raises:
            ConfigurationError: the URL is none.
        """
        self._prefix = prefix + ":"
        self._news = self._prefix + "news"
        self._backlog = Backlog()
        self._line = RedisConnection(_client(url, connections=2), place_of_url(url), deadline, self._catch_up)
        self._reader = NewsReader(_client(url, connections=1), self._news)

    async def take(self, keys: Sequence[str], seconds: float) -> list[bytes | None]:
        answers = await self._line.ask(*(("GETEX", self._prefix + key, "PX", _ms(seconds)) for key in keys))
        return [answer if isinstance(answer, bytes) else None for answer in answers]

    async def there(self, keys: Sequence[str]) -> list[bool]:
        return [bool(found) for found in await self._line.ask(*(("EXISTS", self._prefix + key) for key in keys))]

    async def claim(self, key: str, value: bytes, seconds: float) -> bytes:
        name = self._prefix + key
        _, found = await self._line.ask(("SET", name, value, "NX", "PX", _ms(seconds)), ("GET", name))
        return found if isinstance(found, bytes) else value

    async def swap(self, key: str, before: bytes, value: bytes, seconds: float) -> bytes | None:
        expected = hashlib.sha1(before, usedforsecurity=False).hexdigest()
        command = ("EVAL", _SWAP, 1, self._prefix + key, expected, value, _ms(seconds))
        [found] = await self._line.ask(command)
        return found if isinstance(found, bytes) else None

    async def number(self, key: str, beyond: int, seconds: float) -> int:
        [number] = await self._line.ask(("EVAL", _NUMBER, 1, self._prefix + key, beyond, _ms(seconds)))
        if not isinstance(number, int) or number <= beyond:
            raise StateUnavailableError(f"a number greater than {beyond} was asked for, and {number!r} came")
        return number

    async def keep(self, key: str, value: bytes, seconds: float) -> None:
        await self._set({key: ("SET", self._prefix + key, value, "PX", _ms(seconds))})

    async def drop(self, keys: Sequence[str]) -> None:
        await self._set({key: ("DEL", self._prefix + key) for key in keys})

    async def _set(self, commands: Mapping[str, Command]) -> None:
        def note() -> None:
            for key, command in commands.items():
                self._backlog.value(key, command)

        await self._line.say(*commands.values(), on_loss=note)

    async def notify(self, news: bytes) -> None:
        command: Command = ("XADD", self._news, "MAXLEN", "~", _MAX_KEPT, "*", FIELD, news)
        ttl = int(_TTL_SECONDS * 1000)  # of messages, also where none are sent for long
        tidying = (("EVAL", _TRIM, 1, self._news, ttl), ("PEXPIRE", self._news, ttl))
        await self._line.say(command, *tidying, on_loss=lambda: self._backlog.news(command))

    async def returned(self, seconds: float) -> bool:
        return await self._line.returned(seconds)

    def listen(self, listener: Callable[[bytes], None]) -> None:
        self._reader.listen(listener)

    async def __aenter__(self) -> Self:
        try:
            await self._line.try_now(("PING",))
        except StateUnavailableError as error:
            self._line.lost(error)
        await self._reader.start(is_away=self._line.is_away)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._reader.close()
        await self._line.close()

    async def _catch_up(self) -> None:
        """Send what could not be sent."""
        while waiting := self._backlog.first(_BATCH_SIZE):
            await self._line.try_now(*waiting)
            self._backlog.told(waiting)
        if self._backlog.forgotten:
            _log.warning(
                "could not keep everything that had to be sent while shared state was unavailable",
                extra={"forgotten": self._backlog.forgotten},
            )
            self._backlog.forgotten = 0


def _ms(seconds: float) -> int:
    return max(1, int(seconds * 1000))


def _client(url: str, *, connections: int) -> Redis:
    fix = "fix: write it as redis://HOST:PORT/0, or rediss:// for TLS"
    try:
        is_readable = is_clearly_written(url) and urlsplit(url).port != -1
    except ValueError:  # it quotes the URL
        is_readable = False
    if not is_readable:
        raise ConfigurationError(f"state.url: host, port or password cannot be read — {fix}, / in the password as %2F")
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=connections,
            timeout=1,
            retry=Retry(NoBackoff(), 0),  # callers have no time for a second try
            socket_timeout=None,  # riglm's deadlines apply
            socket_connect_timeout=_OPENING_SECONDS,
            client_name="riglm",
            protocol=2,
        )
    except ValueError as error:
        raise ConfigurationError(f"state.url: {error} — {fix}") from error
    client = Redis.from_pool(pool)
    client.response_callbacks.clear()  # answers stay what the server sent
    return client
