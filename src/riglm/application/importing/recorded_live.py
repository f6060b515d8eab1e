"""Calls that riglm recorded itself while they were made: what their transcripts tell of them is nothing new."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from riglm.application.importing.conversations import is_imported
from riglm.ports.analytics import RecordedSession

_LEEWAY_SECONDS: Final = 2.0  # a client may write a line down somewhat before or after what it tells of


class RecordedLive:
    """Finds the record of a call by its tool and its time; each record is that of one call."""

    def __init__(self, history: Iterable[RecordedSession]) -> None:
        self._times: defaultdict[str, list[float]] = defaultdict(list)
        for session in history:
            if not is_imported(session.id):
                for call in session.calls:
                    insort(self._times[call.tool], call.timestamp)

    def take(self, names: Iterable[str], started: float, ended: float) -> bool:
        """Whether a tool of one of these names was called in that time; that record is that of no other call then."""
        for name in dict.fromkeys(names):
            times = self._times.get(name)
            at = bisect_left(times, started - _LEEWAY_SECONDS) if times else 0
            if times and at < len(times) and times[at] <= ended + _LEEWAY_SECONDS:
                del times[at]
                return True
        return False
