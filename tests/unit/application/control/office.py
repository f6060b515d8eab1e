"""A store that can be away or hang, threads that ask it, and the sessions of a proxy."""

import asyncio
import threading
from contextlib import contextmanager, suppress

from riglm.application.control.thread_bridge import ProxyLoop, StoreThread
from riglm.domain.control import ControlUnavailableError
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.domain.session import ClientInfo, Transport
from riglm.ports.downstream import Caller
from tests.stores.memory import InMemoryAnalytics
from tests.unit.application.fakes import World
from tests.waiting import WAIT_SECONDS, wait_until_async

SOON = WAIT_SECONDS
BRIEFLY = 0.05
"""For whoever waits for what does not come; nothing that comes is waited for so briefly."""


class Archive(InMemoryAnalytics):
    """A store that is away while `away`, and answers no question while its gate is shut; counts what it is asked."""

    def __init__(self):
        super().__init__()
        self.away = False
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.opened = 0
        self.asked = 0

    def __enter__(self):
        if self.away:
            raise AnalyticsUnavailableError("the archive is shut")
        self.opened += 1
        return super().__enter__()

    def wait(self):
        """As every question does."""
        self.asked += 1
        self.entered.set()
        assert self.gate.wait(SOON)
        if self.away:
            raise AnalyticsUnavailableError("the archive is shut")

    def count_sessions(self, since=0.0):
        self.wait()
        return super().count_sessions(since)

    def list_overrides(self):
        self.wait()
        return super().list_overrides()

    def put_override(self, override):
        self.wait()
        super().put_override(override)

    def delete_override(self, override_id):
        self.wait()
        return super().delete_override(override_id)


class Office:
    """What the parts of the control service are made of, on one event loop."""

    def __init__(self, archive, timeout_seconds):
        self.archive = archive
        self.world = World()
        self.registry = self.world.sessions
        self.proxy = ProxyLoop(asyncio.get_running_loop(), timeout_seconds=SOON)
        self.store = StoreThread(lambda: self.archive, "riglm-test-archive", timeout_seconds=timeout_seconds)

    def visitor(self, at=None, name="code"):
        """A session of a client that just came."""
        if at is not None:
            self.world.clock.now = at
        return self.registry.of_connection(Caller(transport=Transport.STDIO), ClientInfo(name=name), "2025-11-25")


async def settled(store):
    """Wait until all that was asked before is done, or was never begun."""

    async def is_settled():
        with suppress(ControlUnavailableError):
            await store.ask(lambda _: None, timeout_seconds=SOON)
            return True
        return False

    await wait_until_async(is_settled)


@contextmanager
def an_office(timeout_seconds=SOON):
    """An office that is closed in the end, its archive's gate open."""
    office = Office(Archive(), timeout_seconds)
    try:
        yield office
    finally:
        office.archive.gate.set()
        office.store.close()
