"""A running proxy over a store in memory, for the functions of the control API and for the API itself."""

import asyncio
import threading
from contextlib import contextmanager
from types import SimpleNamespace

from riglm.application.control.configuration import RedactedConfiguration
from riglm.application.control.running_proxy import RunningProxy
from riglm.domain.errors import AnalyticsUnavailableError, ConflictError, FieldError, InvalidInputError
from riglm.domain.list_plan import Prices
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.session import ClientInfo, Transport
from riglm.ports.downstream import Caller
from riglm.ports.telemetry import RecordCounts
from tests.stores.memory import InMemoryAnalytics
from tests.unit.application.fakes import World
from tests.waiting import WAIT_SECONDS

SHORT_SECONDS = 0.05
"""A timeout for what does not come; nothing that comes is waited for so briefly."""

COUNTS = RecordCounts(
    accepted=10, stored=5, queued=2, spooled=2, dropped=1, recovered=0, reasons={"full": 1, "refused": 0}
)
SIGNAL = {
    "embeddings": {
        "provider": "fastembed",
        "model": "m",
        "status": "ready",
        "actual_provider": "fastembed",
        "actual_model": "m",
        "dimensions": 384,
        "is_fallback_active": False,
        "semantic_quality": "high",
    },
    "tools": {"indexed": 3, "embedded": 2},
    "learned_pairs": 4,
    "weights": {"lexical": 0.35, "semantic": 0.65},
    "advice": "ask in whole sentences",
}


class GatedStore(InMemoryAnalytics):
    """A store that is unavailable while `is_unavailable`, and answers nothing while its gate is shut."""

    def __init__(self):
        super().__init__()
        self.is_unavailable = False
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.opened = 0

    def __enter__(self):
        self.opened += 1
        self.wait()
        return super().__enter__()

    def wait(self):
        self.entered.set()
        assert self.gate.wait(WAIT_SECONDS)
        if self.is_unavailable:
            raise AnalyticsUnavailableError("the store is shut")

    def count_sessions(self, since=0.0):
        self.wait()
        return super().count_sessions(since)

    def list_overrides(self):
        self.wait()
        return super().list_overrides()


class Configuration:
    """A configuration that is changed by whatever it is given, but for the key `wrong`."""

    def __init__(self):
        self.version = 1
        self.document = {"filtering": {"max_tools": 20}, "control": {"token": "***"}}
        self.changes = []

    def shown(self):
        return RedactedConfiguration(version=self.version, document=self.document)

    async def put(self, document, *, expected_version=None):
        if expected_version not in {None, self.version}:
            raise ConflictError("the configuration was changed meanwhile")
        if "wrong" in document:
            raise InvalidInputError(FieldError(path="wrong", detail="there is no such key"))
        self.changes.append(document)
        self.version += 1
        self.document = {**self.document, **document}
        return self.shown()


async def refresh():
    """Read no overrides."""


def make_running_proxy(store, **parts):
    """Return a proxy on this loop over `store`; `parts` replace those that matter to a test."""
    prediction = SimpleNamespace(status=lambda: SIGNAL, begin=lambda: None)
    return RunningProxy(
        **{
            "parts": World().parts,
            "filtering": SimpleNamespace(rules=FilteringSettings(), prices=Prices()),
            "prediction": prediction,
            "overrides": SimpleNamespace(refresh=refresh),
            "recorder": SimpleNamespace(counts=lambda: COUNTS, is_failing=False),
            "configuration": Configuration(),
            "upstreams": list,
            "specs": [],
            "version": "1.2",
            "started_at": 1.0,
            "store_kind": "sqlite",
            "open_store": lambda: store,
            **parts,
        }
    )


@contextmanager
def running_proxy(**parts):
    """Yield a store and a proxy over it, which is closed in the end."""
    store = GatedStore()
    proxy = make_running_proxy(store, **parts)
    try:
        yield store, proxy
    finally:
        store.gate.set()
        proxy.close()


def open_session(proxy, clock_at=None):
    """Return a session of a client that just connected."""
    if clock_at is not None:
        proxy.parts.sessions._clock.now = clock_at
    caller = Caller(transport=Transport.STDIO)
    return proxy.parts.sessions.of_connection(caller, ClientInfo(name="code"), "2025-11-25")


def list_tools_now(proxy, **servers):
    """Have servers list these tools, each by the server's name."""
    proxy.parts.owners.note({tool: (server, tool) for tool, server in servers.items()})


class LoopThread:
    """An event loop on a separate thread."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)

    def __enter__(self):
        self.thread.start()
        return self

    def run(self, function):
        """Call a function on the loop and return its result."""

        async def call():
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(WAIT_SECONDS)

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(WAIT_SECONDS)
        self.loop.close()
