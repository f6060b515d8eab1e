"""Every shared state of sessions, held to the same contract, and what only Redis does."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest

from riglm.adapters.state import RedisSessionState
from riglm.adapters.state.redis_connection import MAX_NEWS, MAX_VALUES
from riglm.domain.errors import ConfigurationError, StateUnavailableError
from riglm.ports.session_state import SessionStatePort, TimeBudget
from tests.contracts.session_state_contract import LONG, Heard, SessionStateContract
from tests.stores import valkey
from tests.stores.session_state import InMemorySessionState
from tests.waiting import wait_until_async

GENEROUS = 5.0
"""A deadline that a busy machine keeps."""


class TestInMemorySessionState(SessionStateContract):
    @pytest.fixture
    async def state(self) -> SessionStatePort:
        return InMemorySessionState()

    @pytest.fixture
    async def other(self, state: SessionStatePort) -> SessionStatePort:
        return state


class TestRedisSessionState(SessionStateContract):
    @pytest.fixture
    def prefix(self) -> str:
        return valkey.own_prefix()

    @pytest.fixture
    async def state(self, prefix: str) -> AsyncIterator[SessionStatePort]:
        async with RedisSessionState(valkey.shared_url(), prefix=prefix, deadline=GENEROUS) as state:
            yield state

    @pytest.fixture
    async def other(self, prefix: str) -> AsyncIterator[SessionStatePort]:
        async with RedisSessionState(valkey.shared_url(), prefix=prefix, deadline=GENEROUS) as state:
            yield state

    async def test_what_others_put_under_a_key_does_no_harm(
        self, state: SessionStatePort, prefix: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        server = valkey.ask_shared
        server("LPUSH", f"{prefix}:list", "x")
        await state.keep("b", b"2", LONG)
        assert await state.take(["list", "b"], LONG) == [None, b"2"]
        assert "did not write" in caplog.text
        server("SET", f"{prefix}:news", "no stream")
        await state.notify(b"news")
        await state.keep("list", b"mine now", LONG)
        assert await state.take(["list"], LONG) == [b"mine now"]

    @pytest.mark.parametrize("planted", ["no number", "inf", "-inf", "nan", "9e99", "0x7fffffffffffffff", "-5"])
    async def test_a_counter_that_another_hand_wrote_is_begun_anew(
        self, state: SessionStatePort, prefix: str, planted: str
    ) -> None:
        valkey.ask_shared("SET", f"{prefix}:count", planted)
        assert [await state.number("count", 7, LONG) for _ in range(2)] == [8, 9]

    async def test_what_is_no_value_is_replaced_by_one(self, state: SessionStatePort, prefix: str) -> None:
        for key in ("value", "count"):
            valkey.ask_shared("LPUSH", f"{prefix}:{key}", "x")
        assert await state.swap("value", b"known", b"1", LONG) is None
        assert await state.number("count", 7, LONG) == 8
        assert await state.take(["value"], LONG) == [b"1"]

    async def test_prefixes_keep_riglms_apart(self, state: SessionStatePort) -> None:
        async with RedisSessionState(valkey.shared_url(), prefix=valkey.own_prefix(), deadline=GENEROUS) as stranger:
            heard = Heard(stranger)
            await state.keep("a", b"1", LONG)
            await state.notify(b"not for strangers")
            await stranger.notify(b"mine")
            assert await stranger.take(["a"], LONG) == [None]
            assert await heard.until(bool) == [b"mine"]


@pytest.fixture
def server() -> Iterator[valkey.ValkeyServer]:
    with valkey.own_server() as server:
        yield server


async def back(state: SessionStatePort) -> None:
    """Until the state can be asked again."""

    async def is_back() -> bool:
        with suppress(StateUnavailableError):
            await state.take(["anything"], LONG)
            return True
        return False

    await wait_until_async(is_back)


async def away(state: SessionStatePort) -> None:
    """The state is found to be away."""
    with pytest.raises(StateUnavailableError):
        await state.take(["anything"], LONG)


@pytest.mark.parametrize("trouble", ["killed", "frozen"])
async def test_what_could_not_be_told_is_told_when_the_server_is_back(
    server: valkey.ValkeyServer, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "riglm.state")
    async with (
        RedisSessionState(server.url, deadline=0.3) as state,
        RedisSessionState(server.url, deadline=GENEROUS) as other,
    ):
        heard = Heard(other)
        await state.keep("gone", b"1", LONG)
        await state.notify(b"before")
        await heard.until(bool)
        if trouble == "killed":
            server.kill()
        else:
            server.freeze()
        await away(state)
        await state.keep("a", b"1", LONG)
        waiting = asyncio.create_task(state.returned(60))
        await state.keep("a", b"2", LONG)
        await state.drop(["gone"])
        await state.notify(b"after")
        if trouble == "killed":
            server.start()
        else:
            server.thaw()
        assert await waiting
        await back(state)
        await back(other)
        assert await other.take(["a", "gone"], LONG) == [b"2", None]
        assert await heard.until(lambda news: len(news) >= 2) == [b"before", b"after"]
    assert "shared state is back" in caplog.text


async def test_only_the_first_waits_for_a_server_that_hangs(server: valkey.ValkeyServer) -> None:
    async with RedisSessionState(server.url, deadline=0.3) as state:
        await state.keep("a", b"1", LONG)
        server.freeze()
        await away(state)
        assert not await state.returned(0.0)
        for _ in range(1_000):  # with the deadline for each, the test would be given up long before
            await away(state)
            await state.keep("a", b"2", LONG)
        server.thaw()
        await back(state)


async def test_a_server_that_refuses_to_write_counts_as_away(server: valkey.ValkeyServer) -> None:
    async with RedisSessionState(server.url, deadline=GENEROUS) as state:
        server.ask("CONFIG", "SET", "maxmemory", "1")
        await state.keep("a", b"2", LONG)
        await away(state)
        server.ask("CONFIG", "SET", "maxmemory", "0")
        await back(state)
        assert await state.take(["a"], LONG) == [b"2"]


async def test_a_server_that_still_loads_counts_as_away(caplog: pytest.LogCaptureFixture) -> None:
    async def loading(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            if line.startswith(b"*"):
                writer.write(b"-LOADING Redis is loading the dataset in memory\r\n")
        writer.close()

    async with await asyncio.start_server(loading, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        async with RedisSessionState(f"redis://127.0.0.1:{port}", deadline=GENEROUS) as state:
            await away(state)
            await state.keep("a", b"1", LONG)
    [reason] = [record.__dict__["reason"] for record in caplog.records]
    assert "is loading the dataset in memory" in reason


class SlowServer:
    """Has nothing and no news, and takes its time to say so."""

    def __init__(self) -> None:
        self.answers_after = 0.0
        self.asked: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                words = []
                for _ in range(int(line[1:])):
                    size = int((await reader.readline())[1:])
                    words.append((await reader.readexactly(size + 2))[:size])
                self.asked.append(words[0])
                if words[0] in {b"CLIENT", b"SELECT"}:
                    writer.write(b"+OK\r\n")
                elif words[0] not in {b"XREAD", b"XREVRANGE"}:
                    await asyncio.sleep(self.answers_after)  # the slowness is what is tested
                    writer.write(b"$-1\r\n")
                elif words[0] == b"XREVRANGE":
                    writer.write(b"*0\r\n")


@contextlib.asynccontextmanager
async def slow_server() -> AsyncIterator[tuple[SlowServer, str]]:
    slow = SlowServer()
    async with await asyncio.start_server(slow.serve, "127.0.0.1", 0) as listener:
        yield slow, f"redis://127.0.0.1:{listener.sockets[0].getsockname()[1]}"


async def test_a_server_that_is_slow_again_and_again_counts_as_away_until_it_is_quick(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with slow_server() as (slow, url), RedisSessionState(url, deadline=1.0) as state:
        slow.answers_after = 0.45
        for _ in range(10):
            with contextlib.suppress(StateUnavailableError):
                await state.take(["a"], LONG)
        await away(state)  # although each answer came in time
        slow.answers_after = 0.0
        await back(state)
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING] == [
        "shared state is unavailable: sessions stay with this process"
    ]


async def test_all_that_a_request_asks_has_one_deadline() -> None:
    async with slow_server() as (slow, url), RedisSessionState(url, deadline=1.0) as state:
        slow.answers_after = 0.45
        with TimeBudget():
            for _ in range(2):
                with contextlib.suppress(StateUnavailableError):  # where the machine is slow as well
                    await state.take(["a"], LONG)
            with pytest.raises(StateUnavailableError):
                await state.take(["a"], LONG)
            await state.keep("a", b"1", LONG)
        slow.answers_after = 0.0
        assert await state.take(["a"], LONG) == [None]  # the server is not away, only this request's time was over


async def test_riglm_starts_without_asking_a_hung_server_for_news() -> None:
    async with slow_server() as (slow, url):
        slow.answers_after = 1.0
        async with RedisSessionState(url, deadline=0.1) as state:
            await away(state)
            assert b"XREVRANGE" not in slow.asked


async def test_news_under_a_key_of_another_hand_are_warned_of_once(
    server: valkey.ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.ask("HSET", "riglm:news", "a", "b")
    async with RedisSessionState(server.url, deadline=GENEROUS) as state:
        heard = Heard(state)
        await wait_until_async(lambda: caplog.records)
        server.ask("DEL", "riglm:news")
        await state.notify(b"news")
        assert await heard.until(bool) == [b"news"]
    [record] = caplog.records
    assert "another hand wrote their key" in record.getMessage()


async def test_news_are_heard_from_a_server_whose_clock_went_back(server: valkey.ValkeyServer) -> None:
    server.ask("XADD", "riglm:news", "99999999999999-0", "news", "before")
    async with RedisSessionState(server.url, deadline=GENEROUS) as state:
        heard = Heard(state)
        server.ask("DEL", "riglm:news")
        await state.notify(b"after")
        assert await heard.until(bool) == [b"after"]


async def test_a_process_whose_clock_is_ahead_removes_no_news_that_others_have_not_read(
    server: valkey.ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.ask("XADD", "riglm:news", "1-0", "news", "old")
    server.ask("XADD", "riglm:news", "*", "news", "unread")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 400 * 86_400)
    async with RedisSessionState(server.url, deadline=GENEROUS) as state:
        await state.notify(b"ahead")
        await state.there(["any"])
    left = server.ask("XRANGE", "riglm:news", "-", "+")
    assert [word in left for word in (b"old", b"unread", b"ahead")] == [False, True, True]


async def test_riglm_starts_without_the_server_and_finds_it_later(caplog: pytest.LogCaptureFixture) -> None:
    with valkey.own_server() as server:
        server.kill()
        async with RedisSessionState(server.url, deadline=0.3) as state:
            assert "shared state is unavailable" in caplog.text
            heard = Heard(state)
            await state.keep("a", b"1", LONG)
            await state.notify(b"news")
            server.start()
            await back(state)
            assert await state.take(["a"], LONG) == [b"1"]
            assert await heard.until(bool) == [b"news"]


@pytest.mark.parametrize("days", [-400, 400], ids=["behind", "ahead"])
async def test_a_process_with_a_wrong_clock_that_starts_without_the_server_hears_what_is_sent_from_then_on(
    monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + days * 86_400)
    with valkey.own_server() as server:
        for place in ("1-0", "*"):
            server.ask("XADD", "riglm:news", place, "news", "old")
        server.freeze()
        async with RedisSessionState(server.url, deadline=0.3) as state:
            heard = Heard(state)
            server.thaw()
            await back(state)
            await state.notify(b"new")
            assert await heard.until(bool) == [b"new"]


async def test_the_backlog_is_bounded_and_says_what_it_forgot(
    server: valkey.ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with RedisSessionState(server.url, deadline=0.3) as state:
        server.kill()
        for number in range(MAX_VALUES + 5):
            await state.keep(f"k{number}", b"v", LONG)
        for number in range(MAX_NEWS + 7):
            await state.notify(b"%d" % number)
        server.start()
        await back(state)
        assert await state.there(["k0", "k4", "k5", f"k{MAX_VALUES + 4}"]) == [False, False, True, True]
    record = next(one for one in caplog.records if "could not keep" in one.getMessage())
    assert record.__dict__["forgotten"] == 12


@pytest.mark.parametrize("url", ["redis://localhost:port/0", "http://localhost"])
def test_a_url_that_is_none_is_refused_with_the_fix(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"state\.url: .* redis://HOST:PORT/0"):
        RedisSessionState(url)


@pytest.mark.parametrize("password", ["s3cret/pw", "1234/s3cret", "s3cret#", "s3cret[x]", "s3cret\N{CARE OF}"])
def test_a_url_that_cannot_be_read_is_refused_without_its_password(password: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RedisSessionState(f"redis://:{password}@localhost")
    assert "s3cret" not in str(caught.value)
