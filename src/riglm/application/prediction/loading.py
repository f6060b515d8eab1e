"""Loads prediction on demand: what earlier runs left to know, and the model."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from riglm.application.owners import ToolOwners
from riglm.application.prediction.prediction_settings import PredictionSettings
from riglm.application.worker import Urgency, Worker
from riglm.domain.tool import ToolCatalog

if TYPE_CHECKING:  # numpy comes with it, and is imported on the worker
    from riglm.application.prediction.prediction_state import PredictionState, PredictionStateLoader
    from riglm.application.prediction.scope_models import OnLoop
    from riglm.domain.retrieval.pairs import LearnedPairs

_MAX_WAITING: Final = 16
_LOADING_SECONDS: Final = 10.0
_CLOSING_SECONDS: Final = 0.5
_log: Final = logging.getLogger("riglm.prediction")


class Loading:
    """Loads on the worker once it is needed: words and vectors of tools, the model, and what was learned with it.

    The model opens on a separate thread meanwhile. Callers wait for at most `_LOADING_SECONDS` after the beginning,
    however long it takes, except in `caught_up`.
    """

    def __init__(
        self,
        worker: Worker,
        make_recollection: Callable[[], "PredictionStateLoader"],
        owners: ToolOwners,
        *,
        clock: Callable[[], float],
        on_recalled: Callable[[], None],
    ) -> None:
        """`make_recollection` runs on the worker.

        `on_recalled` is called on the event loop when everything is loaded, or as much of it as could be.
        """
        self.knowledge: PredictionState | None = None
        self._worker = worker
        self._make_recollection = make_recollection
        self._owners = owners
        self._clock = clock
        self._on_recalled = on_recalled
        self._made: PredictionState | None = None
        self._recollection: PredictionStateLoader | None = None
        self._plan: PredictionSettings | None = None
        self._on_reload: Callable[[], None] = lambda: None
        self._until: float | None = None
        self._is_loaded = False
        self._recalled = asyncio.Event()
        self._waiting: list[ToolCatalog] = []
        self._closed = False

    @property
    def has_failed(self) -> bool:
        """Whether there will be no knowledge."""
        return self._is_loaded and self.knowledge is None

    @property
    def has_begun(self) -> bool:
        """True from the first time that prediction is needed."""
        return self._until is not None

    def know(self, catalog: ToolCatalog) -> None:
        """Note a list. It is indexed once prediction is loaded."""
        if self.knowledge is not None:
            self.knowledge.index.know(catalog)
        elif not self._is_loaded and all(catalog is not other for other in self._waiting):
            self._waiting = [*self._waiting, catalog][-_MAX_WAITING:]

    def begin(self) -> None:
        """Load, once."""
        if self._closed or self.has_begun:
            return
        loop = asyncio.get_running_loop()
        self._until = loop.time() + _LOADING_SECONDS
        self._worker.submit(lambda: self._load(loop.call_soon_threadsafe))

    async def recalled(self) -> "PredictionState | None":
        """Return what is known, once the model, the pairs and the stored vectors are there, or the time is over."""
        self.begin()
        if self._until is not None and not self._recalled.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._until):
                    await self._recalled.wait()
        return self.knowledge

    async def caught_up(self, scope: str, seconds: float) -> bool:
        """Wait for the model, a scope's past and the vectors of all listed tools; whether `seconds` were enough."""
        self.begin()
        try:
            async with asyncio.timeout(seconds):
                await self._recalled.wait()
                if self.knowledge is not None:
                    await self.knowledge.index.embedded()
                    await self.knowledge.scope_models.ready(scope, seconds)
        except TimeoutError:
            return False
        return self.knowledge is None or self.knowledge.scope_models.held(scope) is not None

    def relearn(self) -> None:
        """Learn again, on the worker, from what the store holds now; what is loading is learned again afterwards."""
        call = asyncio.get_running_loop().call_soon_threadsafe
        if not self._closed:
            self._worker.submit(lambda: self._learn_anew(call), Urgency.BACKGROUND)

    def follow(self, plan: PredictionSettings, *, reload: bool, forget: bool) -> None:
        """Apply new settings; `reload` and `forget` as in `PredictionState.follow`."""
        self._plan = plan
        if self._recollection is not None:
            self._recollection.follow(plan)
        if self.knowledge is not None:
            self.knowledge.follow(plan, self._on_reload if reload else None, forget=forget)

    def on_reload(self, listener: Callable[[], None]) -> None:
        """Register a callback, on the event loop, for the end of relearning by a new plan."""
        self._on_reload = listener

    async def close(self) -> None:
        """Start nothing more, release callers that wait, and close the model."""
        self._closed = True
        self._worker.stop()
        self.knowledge = None
        self._is_loaded = True
        self._recalled.set()
        if self._made is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSING_SECONDS):
                    await _closed(self._made)

    def _load(self, on_loop: "OnLoop") -> None:
        try:
            recollection = self._recollection = self._make_recollection()
            if self._plan is not None:
                recollection.follow(self._plan)
            made = self._made = recollection.load(self._worker, self._owners, on_loop, self._clock)
        except Exception:  # noqa: BLE001  # without prediction everything is shown
            _log.exception("prediction could not be loaded: everything is shown")
            on_loop(lambda: self._take(None))
            on_loop(lambda: self._complete(None))
            return
        if self._closed:  # meanwhile, and what was not made then is not opened
            return
        on_loop(lambda: self._take(made))
        made.open(lambda: self._worker.submit(lambda: self._recall(recollection, made, on_loop)))

    def _recall(self, recollection: "PredictionStateLoader", made: "PredictionState", on_loop: "OnLoop") -> None:
        pairs = None
        try:
            pairs = recollection.recall(made)
        except Exception:  # noqa: BLE001  # contexts start cold
            _log.exception("the model could not be loaded: contexts count by their words alone")
        on_loop(lambda: self._complete(pairs))

    def _learn_anew(self, on_loop: "OnLoop") -> None:
        if self._made is None or self._recollection is None:
            return
        try:
            swap = self._recollection.again(self._made)
        except Exception:  # noqa: BLE001  # what was learned before is better than nothing
            _log.warning("what was learned could not be read again", exc_info=True)
        else:
            on_loop(swap)

    def _take(self, knowledge: "PredictionState | None") -> None:
        if self._closed:
            return
        self.knowledge = knowledge
        waiting, self._waiting = self._waiting, []
        if knowledge is not None:
            if self._plan is not None and knowledge.plan is not self._plan:  # it changed while this was made
                knowledge.follow(self._plan, self._on_reload)
            for catalog in waiting:
                knowledge.index.know(catalog)
            knowledge.scope_models.held("")  # replayed in the background, like the others once they are needed
        self._is_loaded = True

    def _complete(self, pairs: "LearnedPairs | None") -> None:
        if self._closed:
            return
        if pairs is not None and self.knowledge is not None:
            self.knowledge.recalled(pairs)
        self._recalled.set()
        self._on_recalled()


async def _closed(knowledge: "PredictionState") -> None:
    try:
        await asyncio.to_thread(knowledge.close)
    except RuntimeError:  # the interpreter ends, and no thread takes anything any more
        knowledge.close()
