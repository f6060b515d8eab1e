"""Loads prediction on demand: what earlier runs left to know, and the model."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from riglm.application.prediction.prediction_settings import PredictionSettings
from riglm.application.worker import Urgency, Worker
from riglm.domain.tool import ToolCatalog

if TYPE_CHECKING:  # numpy comes with it, and is imported on the worker
    from riglm.application.prediction.prediction_state import OnLoop, PredictionState

_MAX_WAITING: Final = 16
_LOADING_SECONDS: Final = 10.0
_CLOSING_SECONDS: Final = 0.5
_log: Final = logging.getLogger("riglm.prediction")


class Loading:
    """Loads once it is needed: words and vectors of tools, the model, and what was learned with it.

    The model opens and closes on a separate thread. Callers wait for at most `_LOADING_SECONDS` after the beginning,
    however long it takes.
    """

    def __init__(
        self,
        worker: Worker,
        make_state: "Callable[[PredictionSettings, OnLoop], PredictionState]",
        settings: PredictionSettings,
        afterwards: Callable[[], Awaitable[None]],
    ) -> None:
        """`make_state` runs on the worker.

        `afterwards` is awaited when everything is loaded, or as much of it as could be, and canceled at the end.
        """
        self.state: PredictionState | None = None
        self.settings = settings
        self.on_reload: Callable[[], None] = lambda: None
        """Called when another strategy has learned."""
        self._worker = worker
        self._opener = Worker("riglm-embedder")
        self._make_state = make_state
        self._afterwards = afterwards
        self._until: float | None = None
        self._task: asyncio.Task[None] | None = None
        self.opened = asyncio.Event()
        """Set once the model is open, or could not be opened."""
        self.restored = asyncio.Event()
        """Set once everything is loaded, or as much of it as could be."""
        self._waiting: deque[ToolCatalog] = deque(maxlen=_MAX_WAITING)

    @property
    def has_failed(self) -> bool:
        """True if prediction could not be loaded, or is closed."""
        return self.restored.is_set() and self.state is None

    @property
    def has_begun(self) -> bool:
        """True from the first time that prediction is needed."""
        return self._until is not None

    def know(self, catalog: ToolCatalog) -> None:
        """Note a list. It is indexed once prediction is loaded."""
        if self.state is not None:
            self.state.index.know(catalog)
        else:
            self._waiting.append(catalog)

    def begin(self) -> None:
        """Load, once."""
        if not (self.restored.is_set() or self.has_begun):
            loop = asyncio.get_running_loop()
            self._until = loop.time() + _LOADING_SECONDS
            self._task = loop.create_task(self._load())
            self._opener.start()

    async def loaded(self) -> "PredictionState | None":
        """Return what is known, once the model, the pairs and the stored vectors are there, or the time is over."""
        self.begin()
        if self._until is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._until):
                    await self.restored.wait()
        return self.state

    async def relearn(self) -> None:
        """Learn again from what the store holds now; if it cannot be read, what was learned before stays."""
        if not self.has_begun:
            return
        await self.restored.wait()
        state = self.state
        if state is None:
            return
        state.scope_models.relearn()
        try:
            state.use(await self._worker.run(state.restored, Urgency.BACKGROUND))
        except Exception:  # noqa: BLE001  # what was learned before is better than nothing
            _log.warning("what was learned could not be read again", exc_info=True)

    def follow(self, settings: PredictionSettings, *, reload: bool) -> None:
        """Apply other settings; with `reload` their strategy is another, which answers as soon as it has learned."""
        self.settings = settings
        if self.state is not None:
            self.state.follow(settings, self.on_reload if reload else None)

    async def close(self) -> None:
        """Start nothing more, release callers that wait, and close the model."""
        state, self.state = self.state, None
        self.opened.set()
        self.restored.set()
        self._worker.stop()
        if self._task is not None:
            self._task.cancel()
        if state is not None:
            state.scope_models.close()
            closing = self._opener.submit(lambda: state.embedder.__exit__(None, None, None))
            await asyncio.wait({asyncio.wrap_future(closing)}, timeout=_CLOSING_SECONDS)
        self._opener.submit(self._opener.stop)

    async def _load(self) -> None:
        settings, on_loop = self.settings, asyncio.get_running_loop().call_soon_threadsafe
        try:
            state = self.state = await self._worker.run(lambda: self._make_state(settings, on_loop))
        except Exception:  # noqa: BLE001  # without prediction everything is shown
            _log.exception("prediction could not be loaded: everything is shown")
        else:
            if self.settings is not settings:  # they changed while the state was made
                state.follow(self.settings, self.on_reload)
            for catalog in self._waiting:
                state.index.know(catalog)
            state.scope_models.of("")  # learned in the background, like the others once they are needed
            await self._restore(state)
        self._waiting.clear()
        self.opened.set()
        self.restored.set()
        await self._afterwards()

    async def _restore(self, state: "PredictionState") -> None:
        """Open the model, and restore the vectors and pairs that were stored with it."""
        try:
            await self._opener.run(state.embedder.__enter__)
            self.opened.set()
            state.use(await self._worker.run(state.restored))
        except Exception:  # noqa: BLE001  # contexts start cold
            _log.exception("the model and what it learned could not be loaded: contexts count by their words alone")
        state.is_open = True
