"""The usage estimates that tool lists are made from, read from the store and kept until they are recomputed."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from riglm.application.failing_open import FailingOpen
from riglm.application.prediction.prediction_settings import PredictionSettings, Strategy
from riglm.application.worker import Worker
from riglm.domain.learning import SessionUse, WarmSet, WarmSetKey
from riglm.domain.session import Session
from riglm.ports.analytics import WarmSetsPort

if TYPE_CHECKING:  # numpy comes with it, and is imported where a strategy learns
    from riglm.application.prediction.calibration import LearnedSessions

RECHECK_SECONDS: Final = 1.0
"""Sessions that start within this time of each other share one look at the store."""

RETRY_SECONDS: Final = 60.0
"""Seconds after which a strategy that failed is tried again, if a fallback made the warm set."""

_WAIT_SECONDS: Final = 5.0  # an estimate takes up to a second, more on a busy machine; clients wait for ten
_MAX_KEPT: Final = 1_000
_log: Final = logging.getLogger("riglm.prediction")


class _Kept(NamedTuple):
    """The warm set of a key, when it was read, on the monotonic clock, and the tools of the session it was read for."""

    warm_set: WarmSet | None
    read_at: float
    candidates: Sequence[str]


class WarmSets:
    """One warm set for each principal, client, profile and project, the same in every process and after every restart.

    It is recomputed by the strategy at the start of a session, once the evidence has grown by 30 % or the period has
    ended. A session waits for that for at most five seconds; then its list is made from the one before, and may change
    when the new one is there. While a disk hangs, only the first session waits.
    """

    def __init__(
        self,
        asking: Worker,
        estimating: Worker,
        store: Callable[[], WarmSetsPort],
        settings: PredictionSettings,
        server_of: Callable[[str], str],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`store` runs on the thread of `asking`, and strategies are made and learn on that of `estimating`.

        `server_of` returns the server of a tool, empty if unknown.
        """
        self._asking = asking
        self._store = store
        self._settings = settings
        self._server_of = server_of
        self._clock = clock
        self._estimating = estimating
        self._learned: tuple[tuple[object, ...], LearnedSessions] | None = None
        self._kept: OrderedDict[WarmSetKey, _Kept] = OrderedDict()
        self._reading: dict[WarmSetKey, asyncio.Task[None]] = {}
        self._late = set[WarmSetKey]()
        self._on_change: Callable[[], None] = lambda: None
        self._guarded = FailingOpen(_log, "recorded use could not be read; lists are made from what was read last, and")

    def on_change(self, callback: Callable[[], None]) -> None:
        """Register a callback for replaced warm sets, and for those that a session did not wait for."""
        self._on_change = callback

    def follow(self, settings: PredictionSettings) -> None:
        """Follow other settings from now on."""
        before, self._settings = self._settings, settings
        if settings.by_principal != before.by_principal:
            self._kept.clear()
        for key, kept in list(self._kept.items()) if settings.strategy != before.strategy else ():
            self._begin_reading(key, kept.candidates)

    def warm_set(self, session: Session) -> WarmSet | None:
        """Return what the lists of a session are made from, None while nothing was learned."""
        kept = self._kept.get(self._key(session))
        return None if kept is None else kept.warm_set

    async def refresh(self, session: Session, candidates: Sequence[str]) -> None:
        """Read the estimates for a session that starts, which may use the candidates; waits for a few seconds."""
        key = self._key(session)
        kept, reading = self._kept.get(key), self._reading.get(key)
        if reading is None and kept is not None and time.monotonic() - kept.read_at < RECHECK_SECONDS:
            return
        if key in self._late:
            return
        done, _ = await asyncio.wait({reading or self._begin_reading(key, candidates)}, timeout=_WAIT_SECONDS)
        if not done:
            self._late.add(key)
            _log.info("a list is made before what was learned last is known: it took too long")

    async def close(self) -> None:
        """Stop reading."""
        for reading in list(self._reading.values()):
            reading.cancel()

    def _begin_reading(self, key: WarmSetKey, candidates: Sequence[str]) -> asyncio.Task[None]:
        reading = self._reading[key] = asyncio.get_running_loop().create_task(self._read(key, candidates))
        reading.add_done_callback(lambda _: self._end_reading(key))
        return reading

    def _end_reading(self, key: WarmSetKey) -> None:
        self._reading.pop(key, None)
        self._late.discard(key)

    def _key(self, session: Session) -> WarmSetKey:
        return WarmSetKey(
            principal=session.principal if self._settings.by_principal else "",
            client=session.client.name,
            profile=session.profile,
            project=session.project,
        )

    async def _read(self, key: WarmSetKey, candidates: Sequence[str]) -> None:
        strategy = self._strategy
        with self._guarded:
            found, sessions = await self._asking.run(lambda: self._stored(key))
            is_due = bool(sessions) and self._is_due(found, len(sessions), candidates)
            if found is not None or not is_due:
                self._keep(key, found, candidates)
            if is_due:
                tools = tuple(dict.fromkeys([*candidates, *(() if found is None else found.usage.probabilities)]))
                made = await self._estimating.run(partial(self._estimate, strategy, key, sessions, tools))
                replaces = None if found is None else found.created_at
                stored = await self._asking.run(lambda: self._store().put_warm_set(made, replaces))
                self._keep(key, stored, candidates)

    def _keep(self, key: WarmSetKey, found: WarmSet | None, candidates: Sequence[str]) -> None:
        before = self._kept.pop(key, None)
        self._kept[key] = _Kept(found, time.monotonic(), candidates)
        if len(self._kept) > _MAX_KEPT:
            self._kept.popitem(last=False)
        is_used = before is not None or key in self._late  # lists were made from the one before, or from none
        if is_used and found != (before and before.warm_set):
            self._on_change()

    def _stored(self, key: WarmSetKey) -> tuple[WarmSet | None, Sequence[SessionUse]]:
        """Return the stored warm set, if it is of sessions that may be learned from, and these sessions."""
        store, scope = self._store(), self._settings.scope_name
        sessions = store.list_session_uses(key.principal if self._settings.by_principal else None)
        found = store.get_warm_set(key) if sessions else None
        return found if found is not None and found.strategy.startswith(scope) else None, sessions

    @property
    def _strategy(self) -> Strategy:
        """The strategy, with a key that names who learns from whom as well."""
        strategy = self._settings.strategy
        return replace(strategy, key=self._settings.scope_name + strategy.key)

    def _is_due(self, found: WarmSet | None, sessions: int, candidates: Sequence[str]) -> bool:
        now, strategy = self._clock(), self._strategy
        if found is None or found.strategy != strategy.key:
            return True
        if found.is_due(sessions, candidates, now, self._settings.period):
            return True
        return found.predictor != strategy.name and now - found.created_at >= RETRY_SECONDS

    def _estimate(
        self, strategy: Strategy, key: WarmSetKey, sessions: Sequence[SessionUse], tools: tuple[str, ...]
    ) -> WarmSet:
        """Return a new warm set; for keys with equal sessions, a strategy learns these once."""
        from riglm.application.prediction.calibration import LearnedSessions  # noqa: PLC0415  # numpy comes with it

        asked = (strategy, tuple(sessions), tools)
        if self._learned is None or self._learned[0] != asked:
            self._learned = asked, LearnedSessions(strategy, sessions, tools, self._server_of)
        return self._learned[1].warm_set(key, self._clock())
