"""SIGKILL at random moments under load: what was acknowledged is stored, once."""

import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from benchmarks.cache import CHECKOUT
from benchmarks.durability.finding import Finding
from benchmarks.durability.stores import STORES, Store
from riglm.adapters.spool.sqlite_spool import SqliteSpool, survey
from riglm.application.tracking.recorder import Recorder

_RATE = 3000.0
_LONGEST_LIFE_SECONDS = 1.5
_DEADLINE_SECONDS = 90.0
_WINDOW_MS = 250.0
_SHARE_OF_EARLY_KILLS = 10


class Writer:
    """A process that records, and what it said."""

    def __init__(self, store: Store, spool: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.durability.writer", store.url, str(spool), str(_RATE)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=CHECKOUT, text=True)
        self.session: UUID | None = None
        self.safe = 0
        self.put = 0
        self.ages: list[float] = []
        self.ages_at_first: list[float] = []
        self.first = threading.Event()
        self.gone = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def end(self, number: int) -> None:
        """Send a signal, and take down its last words."""
        self.process.send_signal(number)
        self.process.wait(_DEADLINE_SECONDS)
        self._reader.join(_DEADLINE_SECONDS)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as said:
            for line in said:
                match line.split() if line.endswith("\n") else []:
                    case ["session", session]:
                        self.session = UUID(session)
                    case ["safe", safe, age, *opening]:
                        self.safe = int(safe)
                        (self.ages_at_first if opening else self.ages).append(float(age))
                        self.first.set()
                    case ["put", put]:
                        self.put = int(put)
        self.gone.set()


def kill(kind: str, kills: int, terms: int, directory: Path, notify: Callable[[str, int, int], None]) -> list[Finding]:
    """Kill writers one after the other, then end some politely, and compare what is stored with what they said."""
    chance = random.Random(kills)
    with STORES[kind](directory) as store:
        killed: list[Writer] = []
        for number in range(kills):
            writer = Writer(store, directory / "spool")
            if (
                number % _SHARE_OF_EARLY_KILLS
            ):  # the others are killed while they import, open the store, or adopt a spool
                writer.first.wait(_DEADLINE_SECONDS)
            writer.gone.wait(chance.uniform(0.0, _LONGEST_LIFE_SECONDS))
            writer.end(9)
            killed.append(writer)
            notify(f"{kind}: {sum(each.safe for each in killed):,} acknowledged", number + 1, kills + terms)
        polite: list[Writer] = []
        for number in range(terms):
            writer = Writer(store, directory / "spool")
            writer.first.wait(_DEADLINE_SECONDS)
            writer.gone.wait(chance.uniform(0.0, _LONGEST_LIFE_SECONDS))
            writer.end(15)
            polite.append(writer)
            notify(f"{kind}: SIGTERM", kills + number + 1, kills + terms)
        left = _replayed(store, directory / "spool")
        return [*_compared(kind, store, killed), *_ended(kind, store, polite), left]


def _replayed(store: Store, spool: Path) -> Finding:
    """Let one more process store what the others left in spools."""
    with Recorder(store.open, open_spool=lambda: SqliteSpool(spool), head_start=0.0) as recorder:
        pause = threading.Event()
        for _ in range(600):
            if not survey(spool):
                break
            pause.wait(0.1)
        recovered = recorder.counts().recovered
    return Finding("records that the last start found in spools", recovered)


def _compared(kind: str, store: Store, writers: list[Writer]) -> list[Finding]:
    lost = doubled = 0
    stored = store.by_session()
    for writer in (each for each in writers if each.session is not None and each.safe):
        assert writer.session is not None
        count, different = stored.get(writer.session, (0, 0))
        doubled += count - different
        if different < writer.safe or count < writer.safe:
            lost += writer.safe - len(store.numbers(writer.session) & set(range(1, writer.safe + 1)))
    ages = sorted(age for writer in writers for age in writer.ages)
    first = max((age for writer in writers for age in writer.ages_at_first), default=0.0)
    return [
        Finding(f"{kind}: SIGKILLs", len(writers)),
        Finding("acknowledged records", sum(writer.safe for writer in writers), least=1000 * len(writers)),
        Finding("of them lost", lost, most=0),
        Finding("stored twice", doubled, most=0),
        Finding("complaints of the integrity check", store.damage(), most=0),
        Finding("a record is unacknowledged for (p50)", ages[len(ages) // 2] if ages else 0.0, "ms"),
        Finding("a record is unacknowledged for (p99)", _share(ages, 0.99), "ms", most=_WINDOW_MS),
        Finding("a record is unacknowledged for (longest)", ages[-1] if ages else 0.0, "ms"),
        Finding("one put while the store is opened is unacknowledged for (longest)", first, "ms"),
    ]


def _ended(kind: str, store: Store, writers: list[Writer]) -> list[Finding]:
    stored = store.by_session()
    put = sum(writer.put for writer in writers)
    kept = sum(stored.get(writer.session, (0, 0))[1] for writer in writers if writer.session is not None)
    return [Finding(f"{kind}: put before {len(writers)} SIGTERMs", put), Finding("of them lost", put - kept, most=0)]


def _share(ascending: list[float], share: float) -> float:
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))] if ascending else 0.0
