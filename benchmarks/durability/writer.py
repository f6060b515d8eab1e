"""A process that records as fast as it is told, and says what was acknowledged, until it is killed.

    python -m benchmarks.durability.writer URL SPOOL RATE [full]

On stdout: `session ID`; then `safe N AGE` whenever more is safe: so many of the first invocations, the oldest of which
had waited for AGE milliseconds. `opening` follows where that one was put before anything was safe, while the store was
opened. At SIGTERM it ends as riglm does and says `put N`.
"""

import os
import signal
import sys
import threading
import time
from collections import deque
from pathlib import Path

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.adapters.spool.sqlite_spool import SqliteSpool
from riglm.application.tracking.recorder import Recorder
from riglm.domain.invocation import ToolInvocation
from riglm.domain.session import IdentificationMethod, ProtocolEra, Session, Transport, uuid7

_TICK_SECONDS = 0.002


def main() -> None:
    url, spool, rate = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    durable = sys.argv[4:] == ["full"]
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    session = Session(
        started_at=time.time(), era=ProtocolEra.MODERN, transport=Transport.STDIO, method=IdentificationMethod.PROCESS
    )
    say(f"session {session.id}")
    recorder = Recorder(
        lambda: SqlAnalytics(url, durable=durable),
        open_spool=lambda: SqliteSpool(spool, durable=durable),
        head_start=0.0,
    )
    recorder.start()
    recorder.put(session)
    put_at: deque[float] = deque()
    put = safe = 0
    opened = float("inf")
    began = time.monotonic()
    while not ending.is_set():
        now = time.monotonic()
        for _ in range(int((now - began) * rate) - put):
            put += 1
            put_at.append(now)
            recorder.put(an_invocation(session, put))
        counts = recorder.counts()
        known = counts.stored + counts.spooled - counts.recovered - 1  # the session was first
        if known > safe:
            now = time.monotonic()
            opened = min(opened, now)
            say(f"safe {known} {1000 * (now - put_at[0]):.1f}" + " opening" * (put_at[0] < opened))
            for _ in range(known - safe):
                put_at.popleft()
            safe = known
        time.sleep(_TICK_SECONDS)
    recorder.close()
    say(f"put {put}")


def an_invocation(session: Session, number: int) -> ToolInvocation:
    return ToolInvocation(
        id=uuid7(),
        session_id=session.id,
        tool=f"tool_{number % 20}",
        upstream="github",
        timestamp=time.time(),
        duration_ms=1.5,
        success=True,
        sequence_number=number,
        arguments_hash="0123456789abcdef0123456789abcdef",
    )


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


if __name__ == "__main__":
    main()
