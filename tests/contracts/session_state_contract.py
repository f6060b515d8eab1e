"""What every shared state of sessions must do: subclass `SessionStateContract` and give it an empty one, seen twice."""

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from riglm.ports.session_state import SessionStatePort
from tests.waiting import WAIT_SECONDS, wait_until_async

WITHIN_SECONDS = WAIT_SECONDS
"""News that do not come within so many seconds do not come."""

LONG = 60.0
"""A time for which values stay during a test, in seconds."""


class Heard:
    """Collects news."""

    def __init__(self, state: SessionStatePort) -> None:
        """Listens to `state`."""
        self.news: list[bytes] = []
        self._came = asyncio.Event()
        state.listen(self._take)

    async def until(self, ready: Callable[[list[bytes]], bool]) -> list[bytes]:
        """All that was heard, once `ready` finds it enough."""
        async with asyncio.timeout(WITHIN_SECONDS):
            while not ready(self.news):
                self._came.clear()
                await self._came.wait()
        return self.news

    def _take(self, news: bytes) -> None:
        self.news.append(news)
        self._came.set()


class SessionStateContract:
    """Override the fixtures `state` and `other` with what two processes have of one empty, open state."""

    @pytest.fixture
    async def state(self) -> SessionStatePort:
        """The state under test, empty."""
        raise NotImplementedError

    @pytest.fixture
    async def other(self) -> SessionStatePort:
        """The same as another process has it."""
        raise NotImplementedError

    async def test_nothing_is_there_at_first(self, state: SessionStatePort) -> None:
        """Asking needs no values."""
        assert await state.take(["a", "b"], LONG) == [None, None]
        assert await state.there(["a"]) == [False]
        assert await state.take([], LONG) == []
        assert await state.returned(0.0)
        await state.drop(["a"])
        await state.drop([])

    async def test_another_process_finds_what_was_kept(self, state: SessionStatePort, other: SessionStatePort) -> None:
        """In the order of the keys, and byte for byte."""
        every_byte = bytes(range(256))
        await state.keep("a", every_byte, LONG)
        await state.keep("c", b"", LONG)
        assert await other.take(["c", "b", "a"], LONG) == [b"", None, every_byte]
        assert await other.there(["a", "b", "c"]) == [True, False, True]

    async def test_the_last_value_counts(self, state: SessionStatePort, other: SessionStatePort) -> None:
        """Whoever kept it."""
        await state.keep("a", b"1", LONG)
        await other.keep("a", b"2", LONG)
        assert await state.take(["a"], LONG) == [b"2"]

    async def test_what_one_process_drops_is_gone_for_all(
        self, state: SessionStatePort, other: SessionStatePort
    ) -> None:
        """And nothing else is."""
        await state.keep("a", b"1", LONG)
        await state.keep("b", b"2", LONG)
        await other.drop(["a"])
        assert await state.take(["a", "b"], LONG) == [None, b"2"]

    async def test_of_all_who_claim_a_key_one_wins(self, state: SessionStatePort, other: SessionStatePort) -> None:
        """And each hears whose value counts."""
        claims = [(state if number % 2 else other).claim("a", b"%d" % number, LONG) for number in range(20)]
        won = set(await asyncio.gather(*claims))
        assert len(won) == 1
        assert await other.take(["a"], LONG) == [won.pop()]

    async def test_a_value_is_put_in_the_place_of_the_one_that_was_known(
        self, state: SessionStatePort, other: SessionStatePort
    ) -> None:
        """Whoever does not know what is there is told, and changes nothing."""
        every_byte = bytes(range(256))
        assert await state.swap("a", b"", every_byte, LONG) is None
        assert await other.swap("a", b"", b"2", LONG) == every_byte
        assert await other.swap("a", every_byte, b"2", LONG) is None
        assert await state.swap("a", every_byte, b"3", LONG) == b"2"
        assert await state.take(["a"], LONG) == [b"2"]

    async def test_where_nothing_is_there_is_nothing_to_know(
        self, state: SessionStatePort, other: SessionStatePort
    ) -> None:
        """A value that went is made good."""
        assert await state.swap("a", b"was there once", b"1", LONG) is None
        assert await other.take(["a"], LONG) == [b"1"]

    async def test_of_all_who_swap_a_value_at_once_one_does(
        self, state: SessionStatePort, other: SessionStatePort
    ) -> None:
        """The others are told by what."""
        await state.keep("a", b"first", LONG)
        swaps = [(state if one % 2 else other).swap("a", b"first", b"%d" % one, LONG) for one in range(20)]
        told = await asyncio.gather(*swaps)
        [winner] = [b"%d" % one for one, found in enumerate(told) if found is None]
        assert set(told) == {None, winner}

    async def test_no_number_is_given_twice(self, state: SessionStatePort, other: SessionStatePort) -> None:
        """Each is greater than what was known, and they grow for all."""
        assert await state.number("a", 0, LONG) == 1
        assert await other.number("a", 0, LONG) == 2
        assert await state.number("a", 41, LONG) == 42
        given = await asyncio.gather(*((state if one % 2 else other).number("a", 0, LONG) for one in range(100)))
        assert sorted(given) == list(range(43, 143))
        assert await other.number("b", 7, LONG) == 8

    async def test_a_swapped_value_and_a_number_go_when_their_time_is_over(self, state: SessionStatePort) -> None:
        """As all values do."""
        await state.swap("a", b"", b"1", 0.2)
        await state.number("b", 5, 0.2)

        async def are_gone() -> bool:
            return not any(await state.there(["a", "b"]))

        await wait_until_async(are_gone)
        assert await state.number("b", 0, LONG) == 1

    async def test_values_go_when_their_time_is_over(self, state: SessionStatePort, other: SessionStatePort) -> None:
        """Those that were taken meanwhile stay as long as was said then, those that were only looked for do not."""
        await state.keep("short", b"1", 0.2)
        await state.keep("prolonged", b"2", 0.2)
        await other.take(["prolonged"], LONG)

        async def is_gone() -> bool:
            return not (await other.there(["short"]))[0]

        await wait_until_async(is_gone)
        assert await state.take(["short", "prolonged"], LONG) == [None, b"2"]

    async def test_news_reach_every_process_in_their_order(
        self, state: SessionStatePort, other: SessionStatePort
    ) -> None:
        """Also the one that tells them."""
        here, there = Heard(state), Heard(other)
        for number in range(300):
            await state.notify(b"%d" % number)
        for heard in (here, there):
            news = await heard.until(lambda news: len(news) >= 300)
            assert all(int(one) + 1 == int(two) for one, two in pairwise(news))

    async def test_very_many_may_ask_at_once(self, state: SessionStatePort, other: SessionStatePort) -> None:
        """Each gets its own answer."""
        await asyncio.gather(*(state.keep(f"k{number}", b"%d" % number, LONG) for number in range(1_000)))
        found = await asyncio.gather(*(other.take([f"k{number}"], LONG) for number in range(1_000)))
        assert found == [[b"%d" % number] for number in range(1_000)]
