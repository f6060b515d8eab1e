"""How many records a second are stored beside calls, and what the event loop that makes the calls notices of it."""

import asyncio
import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.durability.finding import Finding
from benchmarks.durability.stores import STORES, Store
from benchmarks.recording import a_session, call
from riglm.adapters.spool.sqlite_spool import SqliteSpool
from riglm.application.tracking.recorder import Recorder
from riglm.application.tracking.tracking_service import TrackingService
from riglm.domain.hashing import KeyedHasher
from riglm.domain.session import Session

_GOALS = {"sqlite": 10_000, "postgresql": 20_000}
_STEPS = (1.05, 1.2, 1.35, 1.5, 1.75, 2.0)
_KEPT_UP = 0.98
_TICK_SECONDS = 0.002
_LONGEST_BURST_SECONDS = 0.02
_SWITCH_SECONDS = 0.0005  # what riglm sets where lists are filtered, which is the default
_DRAIN_SECONDS = 60


@dataclass
class Step:
    """What came of recording at one rate; times are those of each call in µs, and of each look at the loop in ms."""

    offered: float
    put: int = 0
    seconds: float = 0.0
    stored_after: float = 0.0
    processor_seconds: float = 0.0
    queued: int = 0
    spooled: int = 0
    dropped: int = 0
    costs: list[float] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)

    @property
    def stored_a_second(self) -> float:
        """Until the last one was stored."""
        return (self.put - self.dropped) / self.stored_after

    @property
    def keeps_up(self) -> bool:
        """Whether the records could be made at this rate, and were stored as they came."""
        return not (self.spooled or self.dropped) and self.stored_a_second >= _KEPT_UP * self.offered

    def findings(self, kind: str, goal: float) -> list[Finding]:
        """What is to be known of it."""
        costs, lags = sorted(self.costs), sorted(self.lags)
        return [
            Finding(f"{kind}: records put", self.put / self.seconds, "a second"),
            Finding("stored, until the last one was", self.stored_a_second, "a second", least=goal),
            Finding("processor time of all threads for a record", 1e6 * self.processor_seconds / self.put, "µs"),
            Finding("queued when the last one was put", self.queued),
            Finding("spooled when the last one was put", self.spooled),
            Finding("dropped", self.dropped, most=0),
            Finding("enqueue p50", costs[len(costs) // 2], "µs"),
            Finding("enqueue p99", costs[int(0.99 * len(costs))], "µs", most=50),
            Finding("loop lag p50", lags[len(lags) // 2], "ms"),
            Finding("loop lag p99", lags[int(0.99 * len(lags))], "ms", most=10),
            Finding("loop lag, longest", lags[-1], "ms"),
        ]


def sustained(kind: str, seconds: float, directory: Path, notify: Callable[[str, int, int], None]) -> list[Finding]:
    """Record at little more than the goal, then faster and faster until records back up; the last rate before that."""
    goal = _GOALS[kind]
    best: Step | None = None
    sys.setswitchinterval(_SWITCH_SECONDS)
    with STORES[kind](directory) as store:
        for number, share in enumerate(_STEPS):
            notify(f"{kind}: {share * goal:,.0f} a second", number, len(_STEPS))
            step = _recorded(store, share * goal, seconds, directory / "spool")
            if best is None or step.keeps_up:
                best = step
            if not step.keeps_up:
                break
    assert best is not None
    return [
        *best.findings(kind, goal),
        Finding("rate at which records backed up", 0 if step.keeps_up else step.offered, "a second"),
        Finding("stored then", step.stored_a_second, "a second"),
    ]


def _recorded(store: Store, rate: float, seconds: float, spool: Path) -> Step:
    """Record at an even rate; the spool is there as it always is."""
    step = Step(rate)
    with Recorder(store.open, open_spool=lambda: SqliteSpool(spool), head_start=0.0) as recorder:
        tracking = TrackingService(recorder.put, KeyedHasher(bytes(32)), "hash")
        sessions = [a_session() for _ in range(50)]
        for session in sessions:
            tracking.session_opened(session)
        recorder.flush(30)
        gc.freeze()
        began, used = time.perf_counter(), time.process_time()
        asyncio.run(_called(step, seconds, tracking, sessions))
        step.seconds = time.perf_counter() - began
        counts = recorder.counts()
        step.queued, step.spooled = counts.queued, counts.spooled
        recorder.flush(_DRAIN_SECONDS)
        while recorder.counts().spooled and time.perf_counter() < began + step.seconds + _DRAIN_SECONDS:
            time.sleep(0.01)
        step.stored_after, step.processor_seconds = time.perf_counter() - began, time.process_time() - used
        step.dropped = recorder.counts().dropped
    return step


async def _called(step: Step, seconds: float, tracking: TrackingService, sessions: list[Session]) -> None:
    began = last = time.perf_counter()
    while (now := time.perf_counter()) - began < seconds:
        burst = min(now - last, _LONGEST_BURST_SECONDS)  # what was missed is not made up for
        last = now
        for _ in range(round(burst * step.offered)):
            start = time.perf_counter_ns()
            call(tracking, sessions[step.put % len(sessions)], f"tool_{step.put % 20}")
            step.costs.append((time.perf_counter_ns() - start) / 1000)
            step.put += 1
        due = time.perf_counter() + _TICK_SECONDS
        await asyncio.sleep(_TICK_SECONDS)
        step.lags.append(1000 * (time.perf_counter() - due))
