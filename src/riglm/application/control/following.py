"""Parts of riglm that follow the configuration while it runs."""

import asyncio
import weakref
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, Generic, Protocol, TypeVar

from riglm.application.filtering.service import FilteringService
from riglm.application.prediction.plan import Plan
from riglm.application.prediction.service import PredictionService
from riglm.application.worker import Worker
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.settings import Settings

PROVING_SECONDS: Final = 10.0
"""A predictor that is not made within this time is refused."""

_Value = TypeVar("_Value")

Commit = Callable[[], None]
"""Changes over to what was made ready: plain assignments, on the proxy's event loop."""


class Follower(Protocol):
    """A part of riglm that goes by the configuration."""

    @abstractmethod
    async def prepare(self, before: Settings, after: Settings) -> Commit | None:
        """Make ready for other settings, without anything of it to be noticed; None when it is all the same.

        Raises:
            ConfigurationError: it cannot be done; the text begins with the path of the setting.
        """


class Following(Follower, Generic[_Value]):
    """A part that takes a new value at any time."""

    def __init__(self, read: Callable[[Settings], _Value], take: Callable[[_Value], None]) -> None:
        """`take` is given what `read` finds in the settings, whenever it is another value than before."""
        self._read = read
        self._take = take

    async def prepare(self, before: Settings, after: Settings) -> Commit | None:
        """Nothing has to be made ready."""
        value = self._read(after)
        return None if value == self._read(before) else lambda: self._take(value)


class FilteringFollower(Follower):
    """The filter: new decisions are made whole, and put in the place of the old ones at once."""

    def __init__(self, filtering: FilteringService, tell: Callable[[], None]) -> None:
        """`tell` starts to tell the clients whose list is another one now."""
        self._filtering = filtering
        self._tell = tell
        self._aside = Aside()

    async def prepare(self, before: Settings, after: Settings) -> Commit | None:
        """Make the decisions of the new rules."""
        rules = after.filtering
        if (rules, after.predictor.kind, after.prices) == (before.filtering, before.predictor.kind, before.prices):
            return None
        commit = await self._aside.do(lambda: self._prepared(before, after))

        def changed_over() -> None:
            commit()
            self._tell()

        return changed_over

    def _prepared(self, before: Settings, after: Settings) -> Commit:
        """Make the decisions; long lists of patterns take their time."""
        known = set(before.filtering.contradictions)
        for name in after.filtering.contradictions:
            if name not in known:
                raise ConfigurationError(
                    f"filtering.allowlist: {name!r} is in filtering.denylist as well — fix: keep it in one of them"
                )
        return self._filtering.prepared(after.filtering, after.predictor.kind, after.prices.prices())


class PredictionFollower(Follower):
    """Prediction: a predictor is made once to see that it can be, and learns from the record before it answers."""

    def __init__(
        self,
        prediction: PredictionService,
        plan: Callable[[Settings], Plan],
        prove: Callable[[Settings], object],
    ) -> None:
        """`prove` makes the predictor; it blocks, and raises ConfigurationError."""
        self._prediction = prediction
        self._plan = plan
        self._prove = prove
        self._aside = Aside()

    async def prepare(self, before: Settings, after: Settings) -> Commit | None:
        """See that the predictor can be made."""
        if _about_prediction(before) == _about_prediction(after):
            return None
        is_new = after.predictor != before.predictor or (_predicts(after) and not _predicts(before))
        if is_new:
            try:
                await self._aside.do(lambda: self._made(after), PROVING_SECONDS)
            except TimeoutError:
                raise ConfigurationError(
                    f"predictor.kind: {after.predictor.kind!r} was not made within {PROVING_SECONDS:g} s — fix: "
                    "another one"
                ) from None
        plan = self._plan(after)
        return lambda: self._prediction.follow(plan, anew=after.predictor != before.predictor)

    def _made(self, after: Settings) -> None:
        try:
            self._prove(after)
        except Exception:
            raise
        except BaseException as error:  # a plug-in may even try to exit
            words = (
                f"predictor.kind: {after.predictor.kind!r} cannot be made ({type(error).__name__}) — fix: another one"
            )
            raise ConfigurationError(words) from error


class Aside:
    """Does jobs that block, one at a time on a thread of their own; one that hangs holds up none that comes later."""

    def __init__(self) -> None:
        """The thread starts with the first job."""
        self._worker: Worker | None = None

    async def do(
        self,
        job: Callable[[], _Value],
        seconds: float | None = None,
        *,
        on_late: Callable[[_Value], object] = lambda _: None,
    ) -> _Value:
        """What a job gives; after so many `seconds` it is waited for no longer, and `on_late` is given what it gives.

        Raises:
            TimeoutError: it took longer.
        """
        if self._worker is None:
            self._worker = Worker("riglm-configuration")
            self._worker.start()
            weakref.finalize(self, self._worker.stop)
        future = self._worker.submit(job)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), seconds)
        except TimeoutError:
            self._worker.stop()
            self._worker = None
            future.add_done_callback(lambda late: _late(late, on_late))
            raise


def _late(future: "Future[_Value]", on_late: Callable[[_Value], object]) -> None:
    if not future.cancelled() and future.exception() is None:
        on_late(future.result())


def _predicts(settings: Settings) -> bool:
    return settings.filtering.is_on and settings.filtering.strategy == "prediction"


def _about_prediction(settings: Settings) -> tuple[object, ...]:
    rules = settings.filtering
    bounds = (rules.coverage, rules.min_tools, rules.max_tools, rules.period)
    return settings.predictor, settings.learning, bounds, _predicts(settings)
