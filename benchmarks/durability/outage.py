"""An unavailable store while a client goes on: no call fails, changes or waits, and no record is lost."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.durability.faults import FAULTS, small_disk
from benchmarks.durability.finding import Finding
from benchmarks.durability.replay import Replay
from benchmarks.durability.stores import STORES, Store, clickhouse
from benchmarks.load.message import NoAnswer, echo
from benchmarks.load.stdio_session import StdioSession
from benchmarks.overhead.target import upstream_command
from benchmarks.subject import RIGLM, isolated
from riglm.adapters.spool.sqlite_spool import survey

_BEFORE_SECONDS = 10.0
_AFTER_SECONDS = 10.0
_LAST_ONES_SECONDS = 30.0
_DELAYED_SECONDS = 0.05


@dataclass
class Calls:
    """What became of the calls of one stretch of time."""

    seconds: list[float] = field(default_factory=list)
    failed: int = 0
    changed: int = 0

    @property
    def delayed(self) -> int:
        """How many took more than 50 ms."""
        return sum(each > _DELAYED_SECONDS for each in self.seconds)

    def told(self, when: str, *, strict: bool) -> list[Finding]:
        """What is to be known of them."""
        ascending = sorted(self.seconds)
        most = 0 if strict else None
        return [
            Finding(f"calls {when}", len(ascending) + self.failed),
            Finding(f"failed {when}", self.failed, most=0),
            Finding(f"changed {when}", self.changed, most=0),
            Finding(f"delayed more than 50 ms {when}", self.delayed, most=most),
            Finding(f"p99 {when}", 1000 * ascending[int(0.99 * len(ascending))], "ms"),
            Finding(f"longest {when}", 1000 * ascending[-1], "ms"),
        ]


class Client:
    """Calls at an even rate through a real riglm."""

    def __init__(self, session: StdioSession, rate: float) -> None:
        self._session = session
        self._rate = rate
        self.total = 0

    def call_for(self, seconds: float, notify: Callable[[float], None], until: threading.Event | None = None) -> Calls:
        """Call for so long, and until the event; a call that is late is not made up for by a burst."""
        calls = Calls()
        began = due = time.perf_counter()
        while (now := time.perf_counter()) < began + seconds or not (until is None or until.is_set()):
            if now < due:
                time.sleep(due - now)
            due = max(due + 1 / self._rate, time.perf_counter() - 0.1)
            self._call(calls)
            if self.total % int(self._rate) == 0:
                notify(time.perf_counter() - began)
        return calls

    def _call(self, calls: Calls) -> None:
        self.total += 1
        text = f"call {self.total}"
        try:
            took, answer, _ = self._session.ask("tools/call", echo(text))
            calls.changed += answer.text() != text
            calls.seconds.append(took)
        except NoAnswer:
            calls.failed += 1


def outage(
    fault: str, seconds: float, rate: float, directory: Path, notify: Callable[[str, int, int], None]
) -> list[Finding]:
    """Call before, during and after a fault, and compare what was called with what is stored in the end."""
    kind, befall = FAULTS[fault]
    with _store(kind, fault, directory) as store:
        home = directory / "home"
        home.mkdir()
        environment = isolated(home) | store.settings
        command = [*RIGLM, "run", "--no-filter", "--", *upstream_command("stdio", 10)]
        session = StdioSession(command, home / "riglm.log", environment, home)
        try:
            session.open()
            session.ask("tools/list", {})
            client = Client(session, rate)
            total = int(_BEFORE_SECONDS + seconds)
            before = client.call_for(_BEFORE_SECONDS, lambda past: notify(f"{fault}: before", int(past), total))
            with befall(store, session.pid):
                during = client.call_for(
                    seconds, lambda past: notify(f"{fault}: during", int(_BEFORE_SECONDS + past), total)
                )
                waiting = _in_spools(home)
            replay = Replay(store, home, lambda: client.total)
            after = client.call_for(_AFTER_SECONDS, lambda _: notify(f"{fault}: after", total, total), replay.is_over)
            _wait_for_the_last_ones(store, client)
        finally:
            session.close()
        return [
            *before.told("before", strict=False),
            *during.told("during", strict=True),
            Finding("records in the spool at the end of the fault", waiting),
            *replay.findings(),
            *after.told("after", strict=True),
            *_compared(store, client, home),
        ]


@contextmanager
def _store(kind: str, fault: str, directory: Path) -> Iterator[Store]:
    if fault == "full":
        with small_disk(directory) as place, STORES[kind](place) as store:
            yield store
    else:
        with (STORES | {"clickhouse": clickhouse})[kind](directory) as store:
            yield store


def _in_spools(home: Path) -> int:
    return sum(found.records for root in (home / "spool").glob("*") for found in survey(root))


def _wait_for_the_last_ones(store: Store, client: Client) -> None:
    deadline = time.perf_counter() + _LAST_ONES_SECONDS
    while store.calls() < client.total and time.perf_counter() < deadline:
        time.sleep(_DELAYED_SECONDS)


def _compared(store: Store, client: Client, home: Path) -> list[Finding]:
    stored = [store.by_session()[session] for session in store.by_session()]
    ended = _counts_at_the_end(home / "riglm.log")
    parts = sum(ended.get(name, 0) for name in ("stored", "queued", "spooled", "dropped"))
    return [
        Finding("lost", client.total - sum(different for _, different in stored), most=0),
        Finding("stored twice", sum(count - different for count, different in stored), most=0),
        Finding("complaints of the integrity check", store.damage(), most=0),
        Finding("accepted, and not accounted for at the end", ended.get("accepted", -1) - parts, most=0, least=0),
        Finding("dropped", ended.get("dropped", -1), most=0, least=0),
    ]


def _counts_at_the_end(log: Path) -> dict[str, int]:
    """What riglm said of its records when it ended."""
    for line in reversed(log.read_text(errors="replace").splitlines()):
        if '"recording ended"' in line:
            return dict(json.loads(line))
    return {}
