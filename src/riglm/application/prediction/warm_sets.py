"""The usage estimates that tool lists are made from, read from the store and kept until they are recomputed."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from riglm.application.failing_open import FailingOpen
from riglm.application.worker import Worker
from riglm.domain.session import Session
from riglm.domain.usage import Usage, UsageModel, WarmSet
from riglm.ports.prediction_store import WarmSetsPort

RECHECK_SECONDS: Final = 1.0
"""Sessions that start within this time of each other share one look at the store."""

_TIMEOUT_SECONDS: Final = 1.0  # a query takes milliseconds: this is for a disk that hangs
_MAX_KEPT: Final = 1_000
_EMPTY: Final = UsageModel((), 0.0)
_log: Final = logging.getLogger("riglm.prediction")

_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Estimate:
    warm_set: WarmSet | None
    model: UsageModel
    read_at: float


class WarmSets:
    """One warm set for each principal, client and profile, the same in every process and after every restart.

    It is recomputed at the start of a session, once the evidence has doubled or the period has ended.
    """

    def __init__(
        self,
        asking: Worker,
        store: Callable[[], WarmSetsPort],
        *,
        period: float,
        by_principal: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`store` runs on the thread of `asking`. `period` is in seconds.

        With `by_principal` a principal learns from its sessions only, otherwise from those of all.
        """
        self._asking = asking
        self._store = store
        self._period = period
        self._by_principal = by_principal
        self._clock = clock
        self._kept: OrderedDict[_Key, _Estimate] = OrderedDict()
        self._reading: dict[_Key, asyncio.Task[None]] = {}
        self._on_change: Callable[[], None] = lambda: None
        self._guarded = FailingOpen(_log, "recorded use could not be read; lists are made from what was read last, and")

    def on_change(self, callback: Callable[[], None]) -> None:
        """Register a callback for replaced warm sets."""
        self._on_change = callback

    def follow(self, *, period: float, by_principal: bool) -> None:
        """Use another period and scope from now on."""
        self._period = period
        if by_principal != self._by_principal:
            self._by_principal = by_principal
            self._kept.clear()

    def reread(self) -> None:
        """Read everything from the store again when it is needed."""
        self._kept.clear()

    def usage(self, session: Session) -> Usage | None:
        """Return the estimate for the lists of a session, None while nothing was learned."""
        kept = self._kept.get(self._key(session))
        return None if kept is None or kept.warm_set is None else kept.warm_set.usage

    def model(self, session: Session) -> UsageModel:
        """Return what is recorded by now, for the results of search and of set_context."""
        kept = self._kept.get(self._key(session))
        return _EMPTY if kept is None else kept.model

    async def refresh(self, session: Session) -> None:
        """Read the estimates for a session that starts; waits for at most a second."""
        key = self._key(session)
        kept = self._kept.get(key)
        if kept is not None and time.monotonic() - kept.read_at < RECHECK_SECONDS:
            return
        reading = self._reading.get(key)
        if reading is None:
            reading = self._reading[key] = asyncio.get_running_loop().create_task(self._read(key))
            reading.add_done_callback(lambda _: self._reading.pop(key, None))
        await asyncio.wait({reading}, timeout=_TIMEOUT_SECONDS)

    async def close(self) -> None:
        """Stop reading."""
        for reading in list(self._reading.values()):
            reading.cancel()

    def _key(self, session: Session) -> _Key:
        return session.principal if self._by_principal else "", session.client.name, session.profile

    async def _read(self, key: _Key) -> None:
        with self._guarded:
            found = await asyncio.wrap_future(self._asking.submit(lambda: self._estimated(key)))
            before = self._kept.pop(key, None)
            self._kept[key] = found
            if len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
            if before is not None and before.warm_set != found.warm_set:
                self._on_change()

    def _estimated(self, key: _Key) -> _Estimate:
        principal, client, profile = key
        store, now = self._store(), self._clock()
        whose = principal if self._by_principal else None
        scopes = [store.list_session_uses(whose)]
        if any(each.profile != profile for each in scopes[0]):
            scopes.append(store.list_session_uses(whose, profile=profile))
        scopes.append([each for each in scopes[-1] if each.client == client])
        model = UsageModel(scopes, now)
        stored = store.get_warm_set(principal, client, profile)
        if model.usage.evidence and (stored is None or stored.is_due(model.usage.evidence, now, self._period)):
            made = WarmSet(principal=principal, client=client, profile=profile, usage=model.usage, created_at=now)
            stored = store.put_warm_set(made, None if stored is None else stored.created_at)
        return _Estimate(stored, model, time.monotonic())
