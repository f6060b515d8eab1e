"""Callers that ask the same at about the same time get the same answer."""

import asyncio
from types import SimpleNamespace

import pytest

from riglm.application.control import running_proxy
from riglm.application.control.running_proxy import MAX_SHARE, QueryCache
from riglm.domain.control import ControlUnavailableError
from tests.unit.application.control.parts import SHORT_SECONDS
from tests.unit.application.fakes import Clock


class Store:
    """A store thread whose store is a number that each question increases, and that answers when it may."""

    def __init__(self, clock):
        self.clock = clock
        self.asked = {}
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.error = None

    async def ask(self, question):
        await self.is_open.wait()
        if self.error is not None:
            raise self.error
        return question(self)

    def count(self, name, seconds=0.0):
        """Return how often `name` was asked; it takes `seconds`."""
        self.clock.now += seconds
        self.asked[name] = self.asked.get(name, 0) + 1
        return self.asked[name]


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(running_proxy, "time", SimpleNamespace(monotonic=clock, time=clock))
    return clock


@pytest.fixture
def store(clock):
    return Store(clock)


@pytest.fixture
def ask(store):
    cache = QueryCache(store, timeout_seconds=SHORT_SECONDS)

    async def ask(name, seconds=0.0):
        return await cache.ask(name, lambda store: store.count(name, seconds))

    return ask


async def test_an_answer_is_reused_for_a_moment_and_by_all_who_ask_at_the_same_time(ask, clock):
    assert await asyncio.gather(*(ask("a") for _ in range(5))) == [1] * 5
    assert await ask("b") == 1
    clock.now += 1.9
    assert await ask("a") == 1
    clock.now += 0.2
    assert await ask("a") == 2


async def test_questions_share_what_they_may_cost_and_none_waits_for_ever(ask, store, clock):
    began = clock.now
    while clock.now < began + 300.0:
        for name in "abcd":
            await ask(name, 0.1)
        clock.now += 2.0
    times = list(store.asked.values())
    assert sum(times) * 0.1 <= MAX_SHARE * (clock.now - began) + 4 * 0.1
    assert max(times) - min(times) <= 1 < min(times)


async def test_an_error_reaches_all_callers_and_is_not_kept(ask, store):
    store.error = ControlUnavailableError("away")
    assert await asyncio.gather(ask("a"), ask("a"), return_exceptions=True) == [store.error] * 2
    store.error = None
    assert await ask("a") == 1
