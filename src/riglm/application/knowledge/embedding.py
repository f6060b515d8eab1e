"""Makes vectors of questions, with the model that was chosen or not at all."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Final

from riglm.application.knowledge.retrieval import Embedded
from riglm.application.worker import Urgency, Worker
from riglm.domain.knowledge.pieces import Embedding
from riglm.ports.embedder import EmbedderPort, Embedders, EmbedderUnavailable

_CLOSING_SECONDS: Final = 0.5
_log: Final = logging.getLogger("riglm.knowledge")


class QuestionEmbedder:
    """Embeds on the thread that prediction embeds on, ahead of all that nobody waits for."""

    def __init__(
        self, worker: Worker, make: Callable[[], Embedders], *, seconds: float, dimensions: int | None = None
    ) -> None:
        """`make` runs on the worker, at the first question, and a question waits no longer than `seconds`.

        `dimensions` are those that the model is said to have; a warning tells when it has others.
        """
        self._worker = worker
        self._make = make
        self._seconds = seconds
        self._expected = dimensions
        self._embedders: Embedders | None = None
        self._closed = threading.Event()

    async def __call__(self, text: str) -> Embedded:
        """The vector of a question.

        Raises:
            EmbedderUnavailable: the model does not answer, or not in time; nothing else answers in its place.
        """
        asked = asyncio.wrap_future(self._worker.submit(lambda: self._embedded(text), Urgency.AWAITED))
        try:
            return await asyncio.wait_for(asked, self._seconds)
        except TimeoutError:
            raise EmbedderUnavailable("the model does not answer in time") from None
        except asyncio.CancelledError:
            if asked.cancelled() and self._closed.is_set():  # it is the worker that gave it up, not the client
                raise EmbedderUnavailable("riglm ends") from None
            raise

    async def close(self) -> None:
        """Let the model go, as far as there is time."""
        self._closed.set()
        if self._embedders is not None:
            always = self._embedders.always
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSING_SECONDS):
                    await asyncio.to_thread(always.__exit__, None, None, None)

    def _embedded(self, text: str) -> Embedded:
        chosen = self._opened()
        rows = chosen.embed([text])
        status = chosen.status()
        if rows.shape != (1, status.dimensions):
            raise EmbedderUnavailable("another model was loaded meanwhile")
        if self._expected not in (None, status.dimensions):
            _log.warning(
                "knowledge.dimensions is not what the model has, which counts",
                extra={"configured": self._expected, "dim": status.dimensions},
            )
            self._expected = None
        return Embedded(provider=status.actual_provider, embedding=Embedding(model=chosen.model, vector=rows[0]))

    def _opened(self) -> EmbedderPort:
        if self._closed.is_set():
            raise EmbedderUnavailable("riglm ends")
        if self._embedders is None:
            made = self._make()
            self._embedders = made
            made.always.__enter__()
            if self._closed.is_set():  # it was closed while it was still opening
                made.always.__exit__(None, None, None)
        return self._embedders.chosen
