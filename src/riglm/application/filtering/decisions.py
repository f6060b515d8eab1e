"""One set of rules at work: all that is asked to make a list or to let a call pass."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from riglm.application.failing_open import FailingOpen
from riglm.application.lists.planning import ListPlanner
from riglm.application.lists.predicting import NullPrediction, UsageSource
from riglm.application.lists.selection import Views
from riglm.application.worker import Worker
from riglm.domain.list_plan import Prices
from riglm.domain.naming import Spellings
from riglm.domain.policy import Override, Policy
from riglm.domain.schemas.filtering import Filtering
from riglm.ports.prediction_store import OverridesPort

_PLANNING: Final = (
    "strategy",
    "surface",
    "clients",
    "min_tools",
    "max_tools",
    "coverage",
    "cold_start_limit",
    "index_tokens",
)
"""The rules that the plan of a list follows from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What decisions are made from, whatever the rules."""

    predicting: NullPrediction | None = None
    usage: UsageSource | None = None
    prices: Prices = field(default_factory=Prices)
    overrides: Callable[[], Sequence[Override]] = tuple
    owner: Callable[[str], tuple[str, str]] = lambda name: ("", name)
    clock: Callable[[], float] = time.time


class Decisions:
    """Rules, and what goes by them; where the rules are off, everything is shown, and may be used."""

    def __init__(
        self, rules: Filtering, surroundings: Surroundings, predictor: str, views: Views | None = None
    ) -> None:
        """`predictor` is the name of the strategy, for the record; `views` are those of rules with the same policy."""
        self.rules: Final = rules
        self.predictor: Final = predictor
        self.is_predicted: Final = (
            surroundings.predicting is not None and rules.is_on and rules.strategy == "prediction"
        )
        self.predicting: Final = _predicting(rules, surroundings.predicting)
        self.views: Final = views or _views(rules, surroundings)
        self.usage: Final = surroundings.usage if self.is_predicted else None
        self.prices: Final = surroundings.prices
        usage = self.usage
        self.planner: Final = ListPlanner(
            rules,
            surroundings.prices,
            (lambda session: None if usage is None else usage.usage(session, rules.profile))
            if self.is_predicted
            else None,
            surroundings.owner,
            predictor,
        )

    @property
    def is_on(self) -> bool:
        """Whether anything may be another one than without riglm."""
        return self.rules.is_on

    @property
    def is_shadow(self) -> bool:
        """Whether everything is shown, and what would have been hidden is recorded."""
        return self.is_on and self.rules.mode == "shadow"

    def followed_by(self, rules: Filtering, surroundings: Surroundings, predictor: str) -> "Decisions":
        """Decisions by other rules; what policy leaves is kept where the policy is the same."""
        return Decisions(
            rules, surroundings, predictor, self.views if _policy_of(rules) == _policy_of(self.rules) else None
        )

    def plans_like(self, other: "Decisions") -> bool:
        """Return True if these rules lead to the same plans as other ones."""
        return self.prices == other.prices and all(
            getattr(self.rules, key) == getattr(other.rules, key) for key in _PLANNING
        )


def _policy_of(rules: Filtering) -> tuple[object, ...]:
    return rules.is_on, rules.allowlist, rules.denylist, rules.pinned


def _views(rules: Filtering, surroundings: Surroundings) -> Views:
    if not rules.is_on:
        return Views(Policy(), owner=surroundings.owner, clock=surroundings.clock)
    policy = Policy(
        allowed=Spellings(rules.allowlist) if rules.allowlist else None,
        denied=Spellings(rules.denylist),
        pinned=Spellings(rules.pinned),
    )
    return Views(policy, surroundings.overrides, owner=surroundings.owner, clock=surroundings.clock)


def _predicting(rules: Filtering, predicting: NullPrediction | None) -> NullPrediction:
    return predicting if predicting is not None and rules.is_on and rules.strategy == "prediction" else NullPrediction()


PAUSE_SECONDS: Final = 2.0
"""So long after the last look the store is looked at again: other processes change it as well."""

_log: Final = logging.getLogger("riglm.filtering")


class Overrides:
    """The overrides in force, as they were when the store was last looked at.

    A store that is away leaves those that were read last. Whoever asks gets them at once.
    """

    def __init__(
        self,
        worker: Worker,
        store: Callable[[], OverridesPort],
        *,
        pause: float = PAUSE_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """The store is asked on the worker; `clock` gives seconds since the epoch."""
        self._worker = worker
        self._store = store
        self._pause = pause
        self._clock = clock
        self._read: tuple[Override, ...] = ()
        self._in_force: tuple[Override, ...] = ()
        self._listener: Callable[[], None] | None = None
        self._looked = asyncio.Event()
        self._guarded = FailingOpen(_log, "overrides could not be read; those that were read last count, and")

    def in_force(self) -> Sequence[Override]:
        """All that had not expired when the store was last looked at."""
        return self._in_force

    def when_changed(self, listener: Callable[[], None]) -> None:
        """Tell somebody whenever others are in force than before."""
        self._listener = listener

    async def refresh(self) -> None:
        """Look at the store now; for whoever has just changed it."""
        with self._guarded:
            self._read = tuple(await asyncio.wrap_future(self._worker.submit(lambda: self._store().list_overrides())))
        now, before = self._clock(), self._in_force
        self._in_force = tuple(each for each in self._read if each.holds(now))
        if self._in_force != before and self._listener is not None:
            self._listener()
        self._looked.set()

    async def ready(self, patience: float) -> None:
        """Wait at most `patience` seconds for the first look at the store."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._looked.wait()

    async def follow(self) -> None:
        """Look at the store again and again until this is cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(self._pause)
