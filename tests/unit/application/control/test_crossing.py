"""From the control API's thread to the proxy's loop and to the store, each wait bounded."""

import asyncio
import threading

import pytest

from riglm.application.control.thread_bridge import ProxyLoop
from riglm.domain.control import ControlUnavailableError
from tests.records import an_override
from tests.unit.application.control.office import BRIEFLY, SOON, an_office, settled
from tests.waiting import wait_until_async


class Elsewhere:
    """An event loop on a thread of its own."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(SOON)
            self.loop.close()


async def test_what_is_asked_of_the_proxy_happens_on_its_loop():
    with Elsewhere() as there:
        proxy = ProxyLoop(there.loop)

        async def on_which_thread():
            return threading.current_thread()

        assert await proxy.ask(on_which_thread) is there.thread
        assert await proxy.look(threading.current_thread) is there.thread


async def test_an_error_there_arrives_here():
    with Elsewhere() as there, pytest.raises(ZeroDivisionError):
        await ProxyLoop(there.loop).look(lambda: 1 / 0)


async def test_a_loop_that_does_not_get_on_is_not_waited_for():
    with Elsewhere() as there:
        held, go_on = threading.Event(), threading.Event()
        there.loop.call_soon_threadsafe(lambda: (held.set(), go_on.wait(SOON)))
        assert await asyncio.to_thread(held.wait, SOON)
        with pytest.raises(ControlUnavailableError, match="did not answer in time"):
            await ProxyLoop(there.loop, timeout_seconds=BRIEFLY).look(lambda: None)
        go_on.set()
        assert await ProxyLoop(there.loop).look(lambda: "here") == "here"


async def test_a_loop_that_has_ended_says_so():
    there = Elsewhere()
    there.thread.start()
    there.end()
    with pytest.raises(ControlUnavailableError, match="is ending"):
        await ProxyLoop(there.loop).look(lambda: None)


async def test_the_store_is_opened_at_the_first_question_and_once():
    with an_office() as office:
        assert office.archive.opened == 0
        assert await office.store.ask(lambda store: store.count_sessions()) == (0, 0)
        assert await office.store.ask(lambda store: store.count_sessions()) == (0, 0)
        assert office.archive.opened == 1


async def test_a_store_that_was_away_is_opened_again_when_it_is_back():
    with an_office() as office:
        office.archive.away = True
        with pytest.raises(ControlUnavailableError, match="the archive is shut"):
            await office.store.ask(lambda store: store.count_sessions())
        assert office.store.is_failing
        office.archive.away = False
        assert await office.store.ask(lambda store: store.count_sessions()) == (0, 0)
        assert not office.store.is_failing
        office.archive.away = True
        with pytest.raises(ControlUnavailableError):
            await office.store.ask(lambda store: store.count_sessions())
        office.archive.away = False
        await office.store.ask(lambda store: store.count_sessions())
        assert office.archive.opened == 2


async def test_a_store_that_hangs_is_not_waited_for():
    with an_office(timeout_seconds=BRIEFLY) as office:
        office.archive.gate.clear()
        with pytest.raises(ControlUnavailableError, match="did not answer in time"):
            await office.store.ask(lambda store: store.count_sessions())


async def test_while_a_store_hangs_others_are_told_at_once_and_it_is_asked_nothing_more():
    with an_office(timeout_seconds=BRIEFLY) as office:
        office.archive.gate.clear()
        first = asyncio.create_task(office.store.ask(lambda store: store.count_sessions(), timeout_seconds=SOON))
        await wait_until_async(lambda: office.store.is_failing)
        with pytest.raises(ControlUnavailableError, match="did not answer in time"):
            await office.store.ask(lambda store: store.count_sessions(), timeout_seconds=SOON)
        assert office.archive.asked == 1
        office.archive.gate.set()
        assert await first == (0, 0)
        await settled(office.store)
        assert not office.store.is_failing


async def test_what_is_done_too_late_is_undone():
    made, undone = an_override(), []

    def undo(store, _):
        store.delete_override(made.id)
        undone.append(made)

    with an_office(timeout_seconds=BRIEFLY) as office:
        office.archive.gate.clear()
        with pytest.raises(ControlUnavailableError):
            await office.store.ask(lambda store: store.put_override(made), undo=undo)
        office.archive.gate.set()
        await settled(office.store)
        assert bool(undone) is office.archive.entered.is_set()
        assert list(office.archive.list_overrides()) == []


async def test_what_was_not_begun_in_time_is_never_done():
    with an_office() as office:
        office.archive.gate.clear()
        first = asyncio.create_task(office.store.ask(lambda store: store.count_sessions()))
        assert await asyncio.to_thread(office.archive.entered.wait, SOON)
        with pytest.raises(ControlUnavailableError):
            await office.store.ask(lambda store: store.put_override(an_override()), timeout_seconds=BRIEFLY)
        office.archive.gate.set()
        assert await first == (0, 0)
        assert list(await office.store.ask(lambda store: store.list_overrides())) == []


async def test_after_the_end_nothing_is_asked():
    with an_office() as office:
        await office.store.ask(lambda store: store.count_sessions())
        office.store.close()
        with pytest.raises(ControlUnavailableError, match="is ending"):
            await office.store.ask(lambda store: store.count_sessions())
