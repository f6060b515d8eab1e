"""Embedders that other packages bring."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self, cast

import numpy as np

from riglm.domain.prediction import Vector
from riglm.domain.schemas.embedder import OWN_PROVIDERS
from riglm.ports.embedder import EmbedderPort, EmbedderStatus, EmbedderUnavailable
from riglm.ports.plugging import Socket

GROUP: Final = "riglm.embedders"
"""The entry-point group in which packages name their embedders."""

_SOCKET: Final = Socket(
    group=GROUP,
    what="embedder",
    key="embedder.provider",
    options="embedder.options",
    methods=("__enter__", "__exit__", "embed", "status"),
    port="riglm.ports.embedder.EmbedderPort",
)
_log: Final = logging.getLogger("riglm.embedder")


def available() -> tuple[str, ...]:
    """Return the installed providers, sorted, without the built-in ones; nothing of theirs is imported."""
    return _SOCKET.names()


def select_embedder(provider: str, options: Mapping[str, Any] | None = None) -> EmbedderPort:
    """Make the embedder of a provider with these options; not open yet.

    Raises:
        ConfigurationError: nothing of this name is installed, it cannot be loaded, it is no embedder, or it does not
            take the options.
    """
    made = cast("EmbedderPort", _SOCKET.make(provider, options, own=OWN_PROVIDERS))
    return PluggedEmbedder(made, provider)


class PluggedEmbedder(EmbedderPort):
    """An embedder from a plug-in: any failure or invalid result makes it unavailable."""

    def __init__(self, embedder: EmbedderPort, provider: str) -> None:
        self._embedder = embedder
        self._provider = provider
        self._failure = ""

    def __enter__(self) -> Self:
        """Open it; one that cannot be opened answers nothing."""
        try:
            self._embedder.__enter__()
        except Exception as error:  # noqa: BLE001  # a fallback is used
            self._failure = f"{self._provider} could not be opened: {error}"
            _log.warning("an embedder could not be opened", exc_info=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        try:
            self._embedder.__exit__(kind, error, trace)
        except Exception:  # noqa: BLE001  # it is released in any case
            _log.warning("an embedder could not be closed", exc_info=True)

    @property
    def model(self) -> str:
        """The identity of its vectors."""
        return self._embedder.model

    def embed(self, texts: Sequence[str]) -> Vector:
        """One row for each text.

        Raises:
            EmbedderUnavailable: it raised, or what it gave are no such rows.
        """
        if self._failure:
            raise EmbedderUnavailable(self._failure)
        try:
            rows: Vector = np.array(self._embedder.embed(texts), dtype=np.float32)
        except EmbedderUnavailable:
            raise
        except Exception as error:
            raise EmbedderUnavailable(f"{self._provider}: {error}") from error
        if rows.ndim != 2 or len(rows) != len(texts) or not np.isfinite(rows).all():
            raise EmbedderUnavailable(f"{self._provider} gave no finite row for each text, but {rows.shape}")
        return rows

    def status(self) -> EmbedderStatus:
        """Return its status, under the name that the configuration gives it."""
        said = replace(self._embedder.status(), provider=self._provider)
        return replace(said, status="unavailable", semantic_quality="none") if self._failure else said
