"""How many records a second are stored beside calls, and what the event loop that makes the calls notices of it."""

import asyncio
import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.durability.finding import Finding
from benchmarks.durability.stores import STORES
from benchmarks.recording import Privacy, a_session, call
from riglm.adapters.spool.files import FileSpool
from riglm.application.recording.recorder import Recorder
from riglm.application.recording.tracking import TrackingService
from riglm.domain.hashing import KeyedHasher
from riglm.domain.session import Session

_RATES = {"sqlite": 10_000, "postgresql": 20_000}
_TICK_SECONDS = 0.002
_LONGEST_BURST_SECONDS = 0.02
_SWITCH_SECONDS = 0.0005  # what riglm sets where lists are filtered, which is the default


def sustained(kind: str, seconds: float, directory: Path, tell: Callable[[str, int, int], None]) -> list[Finding]:
    """Record at the rate that the store is to keep up with; the spool is there as it always is."""
    costs: list[float] = []
    lags: list[float] = []
    rate = _RATES[kind]

    async def serve(tracking: TrackingService, sessions: list[Session]) -> int:
        began = last = time.perf_counter()
        made = 0
        while (past := (now := time.perf_counter()) - began) < seconds:
            burst = min(now - last, _LONGEST_BURST_SECONDS)  # what was missed is not made up for
            last = now
            for _ in range(round(burst * rate)):
                start = time.perf_counter_ns()
                call(tracking, sessions[made % len(sessions)], f"tool_{made % 20}")
                costs.append((time.perf_counter_ns() - start) / 1000)
                made += 1
            due = time.perf_counter() + _TICK_SECONDS
            await asyncio.sleep(_TICK_SECONDS)
            lags.append(1000 * (time.perf_counter() - due))
            if made % rate < 2 * _TICK_SECONDS * rate:
                tell(f"{kind}: sustained", int(past), int(seconds))
        return made

    sys.setswitchinterval(_SWITCH_SECONDS)
    with STORES[kind](directory) as store:
        with Recorder(store.open, open_spool=lambda: FileSpool(directory / "spool"), head_start=0.0) as recorder:
            tracking = TrackingService(recorder, KeyedHasher(bytes(32)), Privacy())
            sessions = [a_session() for _ in range(50)]
            for session in sessions:
                tracking.session_opened(session)
            recorder.flush(30)
            gc.freeze()
            began, used = time.perf_counter(), time.process_time()
            made = asyncio.run(serve(tracking, sessions))
            at_the_end = recorder.counts()
            recorder.flush(60)
            while recorder.counts().spooled and time.perf_counter() < began + 3 * seconds + 60:
                time.sleep(0.01)
            took, used = time.perf_counter() - began, time.process_time() - used
            counts = recorder.counts()
        costs.sort()
        lags.sort()
        return [
            Finding(f"{kind}: records put", made / seconds, "a second"),
            Finding("stored, until the last one was", made / took, "a second", least=0.95 * rate),
            Finding("processor time of all threads for a record", 1e6 * used / made, "µs"),
            Finding("queued when the last one was put", at_the_end.queued),
            Finding("spooled when the last one was put", at_the_end.spooled),
            Finding("dropped", counts.dropped, most=0),
            Finding("enqueue p50", costs[len(costs) // 2], "µs"),
            Finding("enqueue p99", costs[int(0.99 * len(costs))], "µs", most=50),
            Finding("loop lag p50", lags[len(lags) // 2], "ms"),
            Finding("loop lag p99", lags[int(0.99 * len(lags))], "ms", most=10),
            Finding("loop lag, longest", lags[-1], "ms"),
        ]
