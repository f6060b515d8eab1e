"""A real model, run by fastembed in a separate process."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

import numpy as np

from riglm.adapters.embedding.frames import Embed, Loaded
from riglm.adapters.embedding.hashing import readable
from riglm.adapters.embedding.supervision import SharedServer, Supervisor
from riglm.domain.prediction import Vector
from riglm.ports.embedder import EmbedderPort, EmbedderStatus, EmbedderUnavailableError

FASTEMBED_PROVIDER: Final = "fastembed"
"""The provider's name in the configuration and in the capability signal."""

_ATTEMPTS: Final = 3


class FastembedEmbedder(EmbedderPort):
    """The first of several models that can be loaded without a network.

    The model's libraries and its 170 MB live in another process, see `Supervisor`. Several threads may ask; their
    batches take turns.
    """

    def __init__(
        self,
        models: Sequence[str],
        *,
        directory: Path,
        deadline: float = 10.0,
        start_deadline: float = 30.0,
        batch: int = 8,
        idle: float = 300.0,
        first_delay: float = 1.0,
        shared_in: Path | None = None,
    ) -> None:
        """An embedder that is not started yet.

        Args:
            models: the configured one, then its fallbacks.
            directory: where models of the hub are kept.
            deadline: seconds for one batch.
            start_deadline: seconds for the process to start and to load its model.
            batch: number of texts per request; another thread waits no longer than for one batch.
            idle: seconds without a request after which the process ends.
            first_delay: seconds before the process is started again after it hung or could not load a model.
            shared_in: the directory of the socket of the server that the user's riglm processes share; None for a
                private process.
        """
        self._models = tuple(models)
        self._deadline = deadline
        self._batch = batch
        self._supervisor = Supervisor(
            self._models,
            directory,
            start_deadline=start_deadline,
            idle=idle,
            first_delay=first_delay,
            server=None if shared_in is None else SharedServer(shared_in, self._models, directory),
        )

    def __enter__(self) -> Self:
        self._supervisor.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._supervisor.close()

    @property
    def model(self) -> str:
        loaded = self._supervisor.loaded
        return loaded.identity if loaded else self._models[0]

    @property
    def loaded(self) -> Loaded | None:
        """The model that was loaded last."""
        return self._supervisor.loaded

    @property
    def first_loaded(self) -> Loaded | None:
        """The model that was loaded first."""
        return self._supervisor.first_loaded

    @property
    def pid(self) -> int | None:
        """The id of riglm's private embedding process; None while there is none."""
        return self._supervisor.pid

    def embed(self, texts: Sequence[str]) -> Vector:
        return self.answered(texts)[1]

    def answered(self, texts: Sequence[str]) -> tuple[Loaded | None, Vector]:
        """The same, with the model that they are of; of no texts that may be none.

        Raises:
            EmbedderUnavailableError: the model does not answer.
        """
        requests = [
            Embed(texts=tuple(map(readable, texts[start : start + self._batch])))
            for start in range(0, len(texts), self._batch)
        ]
        if not requests:
            self._supervisor.refuse_if_down()
            known = self._supervisor.loaded
            return known, np.zeros((0, _dimensions(known)), dtype=np.float32)
        for _ in range(_ATTEMPTS):
            answers = [self._supervisor.ask(request, self._deadline) for request in requests]
            loaded = answers[0][0]
            if all(each.identity == loaded.identity for each, _ in answers):
                floats = bytearray().join(vectors.floats for _, vectors in answers)
                return loaded, np.frombuffer(floats, dtype=np.float32).reshape(len(texts), loaded.dimensions)
        raise EmbedderUnavailableError("the process kept coming back with another model")

    def status(self) -> EmbedderStatus:
        loaded, down = self._supervisor.loaded, self._supervisor.down is not None
        actual = loaded.model if loaded else self._models[0]
        return EmbedderStatus(
            provider=FASTEMBED_PROVIDER,
            model=self._models[0],
            status="unavailable" if down else "ready" if loaded else "loading",
            actual_provider=FASTEMBED_PROVIDER,
            actual_model=actual,
            dimensions=_dimensions(loaded),
            is_fallback_active=actual != self._models[0],
            semantic_quality="none" if down or loaded is None else "high",
        )


def _dimensions(loaded: Loaded | None) -> int:
    return loaded.dimensions if loaded else 0


class ChosenEmbedder(EmbedderPort):
    """Answers from the model that is configured, or where none is from the one that was loaded first.

    A fallback that the embedder's process loaded serves the embedder's other callers, and not this one.
    """

    def __init__(self, embedder: FastembedEmbedder, configured: str | None) -> None:
        """`configured` is the configured model, None where the embedder chooses."""
        self._embedder = embedder
        self._configured = configured
        self._last: Loaded | None = None

    def __enter__(self) -> Self:
        self._embedder.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._embedder.__exit__(None, None, None)

    @property
    def model(self) -> str:
        loaded = self._last or self._embedder.loaded
        if loaded is not None and self._is_chosen(loaded):
            return loaded.identity
        return self._wanted or self._embedder.model

    def embed(self, texts: Sequence[str]) -> Vector:
        """One row for each text, of the chosen model.

        Raises:
            EmbedderUnavailableError: it does not respond, or a fallback was loaded.
        """
        loaded, rows = self._embedder.answered(texts)
        if loaded is not None and not self._is_chosen(loaded):
            reasons = [each.reason for each in loaded.passed_over if _is_same(each.model, self._wanted)]
            raise EmbedderUnavailableError(
                "; ".join(reasons) or f"{loaded.model} was loaded in the place of {self._wanted}"
            )
        self._last = loaded
        return rows

    def status(self) -> EmbedderStatus:
        status, loaded = self._embedder.status(), self._embedder.loaded
        if loaded is None or self._is_chosen(loaded):
            return status
        return replace(status, status="unavailable", semantic_quality="none")

    @property
    def _wanted(self) -> str | None:
        first = self._embedder.first_loaded
        return self._configured or (None if first is None else first.model)

    def _is_chosen(self, loaded: Loaded) -> bool:
        return _is_same(loaded.model, self._wanted)


def _is_same(model: str, wanted: str | None) -> bool:
    return wanted is None or model.casefold() == wanted.casefold()
