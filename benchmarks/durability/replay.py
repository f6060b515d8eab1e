"""A spool that empties itself into a store which is back, seen from outside while calls go on."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.durability.finding import Finding
from benchmarks.durability.stores import Store

_RECOVERY_SECONDS = 90.0
_LOOK_SECONDS = 0.01
_ENOUGH_TO_TELL_A_RATE = 2000


class Sight(NamedTuple):
    """What was seen at one time: how many calls were stored, and how many had been made."""

    at: float
    stored: int
    made: int


class Replay:
    """Watches from its making on; `is_over` is set when nothing is left in the spool, or after 90 s.

    `made` tells how many calls were made so far.
    """

    def __init__(self, store: Store, home: Path, made: Callable[[], int]) -> None:
        self._store = store
        self._home = home
        self._made = made
        self._began = time.perf_counter()
        self._sights: list[Sight] = []
        self.is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def findings(self) -> list[Finding]:
        """How long it took until the store took something, and how many records of the spool a second from then on.

        What comes of the calls that are made meanwhile is not counted.
        """
        self._thread.join()
        first, last = self._sights[0], self._sights[-1]
        taken = next((sight for sight in self._sights if sight.stored > first.stored), last)
        replayed = max(0, (last.stored - taken.stored) - (last.made - taken.made))
        seconds = last.at - taken.at
        return [
            Finding("until the store was noticed to be back", taken.at - self._began, "s", most=35),
            Finding("records replayed after that", replayed),
            Finding(
                "of them a second",
                replayed / seconds if seconds else 0.0,
                least=5000 if replayed >= _ENOUGH_TO_TELL_A_RATE else None,
            ),
            Finding("left in the spool", 0 if self._is_empty() else 1, most=0),
        ]

    def _watch(self) -> None:
        try:
            with self._store.counting() as stored:
                while time.perf_counter() < self._began + _RECOVERY_SECONDS:
                    is_empty = self._is_empty()  # asked first: what was in the spool is stored by now
                    self._sights.append(Sight(time.perf_counter(), stored(), self._made()))
                    if is_empty:
                        break
                    time.sleep(_LOOK_SECONDS)
        finally:
            self.is_over.set()

    def _is_empty(self) -> bool:
        return next((self._home / "spool").glob("*/*.db"), None) is None
