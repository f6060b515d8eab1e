"""From the control API's thread to the proxy's loop and to the store, each wait bounded."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from riglm.application.control import running_proxy
from riglm.application.control.running_proxy import ControlStore, ProxyLoop, QueryCache
from riglm.domain.errors import ControlUnavailableError
from tests.records import an_override
from tests.unit.application.control.parts import SHORT_SECONDS, GatedStore, LoopThread
from tests.unit.application.fakes import Clock
from tests.waiting import WAIT_SECONDS


@pytest.fixture
def store():
    return GatedStore()


@pytest.fixture
def create_thread(store):
    created = []

    def create(timeout_seconds=WAIT_SECONDS):
        created.append(ControlStore(lambda: store, "riglm-test-store", timeout_seconds=timeout_seconds))
        return created[-1]

    yield create
    store.gate.set()
    for each in created:
        each.close()


async def test_questions_to_the_proxy_run_on_its_loop_and_errors_arrive():
    with LoopThread() as there:
        proxy = ProxyLoop(there.loop)

        async def find_thread():
            return threading.current_thread()

        assert await proxy.ask(find_thread) is there.thread
        assert await proxy.look(threading.current_thread) is there.thread
        with pytest.raises(ZeroDivisionError):
            await proxy.look(lambda: 1 / 0)


async def test_a_blocked_loop_is_not_waited_for():
    with LoopThread() as there:
        held, go_on = threading.Event(), threading.Event()
        there.loop.call_soon_threadsafe(lambda: (held.set(), go_on.wait(WAIT_SECONDS)))
        assert await asyncio.to_thread(held.wait, WAIT_SECONDS)
        with pytest.raises(ControlUnavailableError, match="did not answer in time"):
            await ProxyLoop(there.loop, timeout_seconds=SHORT_SECONDS).look(lambda: None)
        go_on.set()
        assert await ProxyLoop(there.loop).look(lambda: "here") == "here"


async def test_the_store_is_opened_at_the_first_question_and_again_after_it_was_unavailable(store, create_thread):
    thread = create_thread()
    assert store.opened == 0
    assert await thread.ask(lambda store: store.count_sessions()) == (0, 0)
    assert await thread.ask(lambda store: store.count_sessions()) == (0, 0)
    assert store.opened == 1
    store.is_unavailable = True
    for _ in range(2):  # a question, and opening it
        with pytest.raises(ControlUnavailableError, match="the store is shut"):
            await thread.ask(lambda store: store.count_sessions())
        assert thread.is_failing
    store.is_unavailable = False
    assert await thread.ask(lambda store: store.count_sessions()) == (0, 0)
    assert not thread.is_failing


async def test_a_hanging_store_is_not_waited_for_and_what_did_not_begin_is_never_done(store, create_thread):
    thread = create_thread(SHORT_SECONDS)
    store.gate.clear()
    for question in (lambda store: store.count_sessions(), lambda store: store.put_override(an_override())):
        with pytest.raises(ControlUnavailableError, match="did not answer in time"):
            await thread.ask(question)
    assert thread.is_failing
    store.gate.set()
    patient = create_thread()
    assert list(await patient.ask(lambda store: store.list_overrides())) == []


# --- callers that ask the same at about the same time get the same answer ---


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
def counter(clock):
    return Store(clock)


@pytest.fixture
def ask(counter):
    cache = QueryCache(counter, timeout_seconds=SHORT_SECONDS)

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


async def test_an_answer_that_took_long_is_reused_for_longer(ask, clock):
    assert await ask("a", 1.0) == 1
    clock.now += 29.0
    assert await ask("a") == 1
    clock.now += 2.0
    assert await ask("a") == 2


async def test_an_error_reaches_all_callers_and_is_not_kept(ask, counter):
    counter.error = ControlUnavailableError("away")
    assert await asyncio.gather(ask("a"), ask("a"), return_exceptions=True) == [counter.error] * 2
    counter.error = None
    assert await ask("a") == 1
