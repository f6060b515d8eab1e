"""A store that can be away, slow, or picky, and a recorder that does not wait for it."""

import threading

from riglm.application.tracking.recorder import Backoff, Recorder
from riglm.domain.errors import AnalyticsUnavailableError
from tests.stores.memory import InMemoryAnalytics
from tests.waiting import WAIT_SECONDS

SOON = WAIT_SECONDS
AT_ONCE = Backoff(first=0.001, longest=0.002)


class Shop(InMemoryAnalytics):
    """A store that can be away, slow, or picky."""

    def __init__(self):
        super().__init__()
        self.away = False
        self.opened = 0
        self.closed = 0
        self.batches = []
        self.tries = 0
        self.tried = threading.Event()
        self.gate = threading.Event()
        self.gate.set()
        self.refuses = lambda _: False
        self.on_try = lambda: None

    def __enter__(self):
        self.opened += 1
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        self.closed += 1

    def record_many(self, records):
        self.tries += 1
        self.tried.set()
        assert self.gate.wait(SOON)
        self.on_try()
        if self.away:
            raise AnalyticsUnavailableError("the shop is shut")
        if any(self.refuses(record) for record in records):
            raise ValueError("not in my shop")
        super().record_many(records)
        self.batches.append(list(records))


class Eager(Recorder):
    """A recorder that does not wait at start, nor for a store that is away."""

    def __init__(self, open_store, **options):
        super().__init__(open_store, **{"head_start": 0.0, "backoff": AT_ONCE, **options})


def obeys_the_law(recorder: Recorder) -> bool:
    counts = recorder.counts()
    return (
        counts.accepted == counts.stored + counts.queued + counts.spooled + counts.dropped
        and sum(counts.reasons.values()) == counts.dropped
    )
