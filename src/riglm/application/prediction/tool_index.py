"""The retriever over all tools that were listed, made and kept up to date off the event loop."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from hashlib import blake2b
from itertools import islice
from typing import Final

from riglm.application.owners import ToolOwners
from riglm.application.prediction.worker import Urgency, Worker
from riglm.domain.prediction import Vector
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.domain.retrieval.retriever import Retriever, passage
from riglm.domain.tool import Catalogue, ToolProfile, profile
from riglm.ports.embedder import EmbedderPort, EmbedderUnavailable

MOST_TOOLS: Final = 20_000
"""Tools beyond so many are shown and routed as ever, and not predicted."""

_READING_SECONDS: Final = 2.0
_BATCH: Final = 8
_MOST_LISTS: Final = 256
_log: Final = logging.getLogger("riglm.prediction")


class ToolIndex:
    """Takes note of lists on the event loop, and reads, indexes and embeds what is new in them on the worker.

    Words are indexed at once, vectors follow batch by batch, so that what a client waits for comes in between. While
    another model is taking over, the vectors of the last one serve.
    """

    def __init__(
        self,
        worker: Worker,
        embedder: EmbedderPort,
        pairs: LearnedPairs,
        owners: ToolOwners,
        on_changed: Callable[[str, str], None],
    ) -> None:
        """`on_changed` is told, on the worker, the name and new fingerprint of a tool that describes itself anew."""
        self.retriever: Retriever | None = None
        self._worker = worker
        self._embedder = embedder
        self._pairs = pairs
        self._owners = owners
        self._on_changed = on_changed
        self._reading: Future[None] | None = None
        self._last: Catalogue | None = None
        self._lists: OrderedDict[bytes, None] = OrderedDict()
        self._profiles: dict[str, ToolProfile] = {}
        self._model = ""
        self._vectors: dict[str, tuple[str, Vector]] = {}
        self._embedding = False

    def know(self, catalogue: Catalogue) -> None:
        """Take note of a list; one that was seen lately costs a hash."""
        if catalogue is self._last:
            return
        self._last = catalogue
        raw = catalogue.raw or b"\0".join(bytes(tool.raw) for tool in catalogue.tools)
        key = blake2b(raw, digest_size=16).digest()
        if key in self._lists:
            self._lists.move_to_end(key)
            return
        self._lists[key] = None
        if len(self._lists) > _MOST_LISTS:
            self._lists.popitem(last=False)
        self._reading = self._worker.submit(lambda: self._read(catalogue))

    async def read(self) -> None:
        """Wait, a little, until the words of all lists that were noted so far are indexed."""
        if self._reading is not None and not self._reading.done():
            await asyncio.wait({asyncio.wrap_future(self._reading)}, timeout=_READING_SECONDS)

    def use(self, pairs: LearnedPairs) -> None:
        """Go on with other learned pairs."""
        self._pairs = pairs
        self._worker.submit(self._build)

    def model_changed(self) -> None:
        """Embed all tools anew, in the background."""
        self._worker.submit(self._embed_next, Urgency.BACKGROUND)

    @property
    def model(self) -> str:
        """The model of the vectors; empty before the first."""
        return self._model

    def fingerprint(self, tool: str) -> str:
        """The fingerprint of what a tool says of itself; empty when it is not known."""
        said = self._profiles.get(tool)
        return said.fingerprint if said is not None else ""

    def counts(self) -> tuple[int, int]:
        """How many tools are indexed, and how many of them have vectors."""
        return len(self._profiles), len(self._vectors)

    def _read(self, catalogue: Catalogue) -> None:
        changed = False
        for tool in islice(catalogue.tools, MOST_TOOLS):
            server, bare_name = self._owners.of(tool.name)
            said = profile(tool, server=server, bare_name=bare_name)
            known = self._profiles.pop(tool.name, None)
            self._profiles[tool.name] = said
            if known is None or known.fingerprint != said.fingerprint:
                changed = True
            if known is not None and known.fingerprint != said.fingerprint:
                self._on_changed(tool.name, said.fingerprint)
        while len(self._profiles) > MOST_TOOLS:
            del self._profiles[next(iter(self._profiles))]
        if changed:
            self._build()
        if self._missing():
            self._embed_soon()

    def _build(self) -> None:
        made = Retriever(list(self._profiles.values()), pairs=self._pairs)
        vectors = self._current()
        self.retriever = made.with_vectors(self._model, vectors) if vectors else made

    def _current(self) -> Mapping[str, Vector]:
        found = {}
        for name, said in self._profiles.items():
            kept = self._vectors.get(name)
            if kept is not None and kept[0] == said.fingerprint:
                found[name] = kept[1]
        return found

    def _embed_soon(self) -> None:
        if not self._embedding:
            self._embedding = True
            self._worker.submit(self._embed_next, Urgency.BACKGROUND)

    def _embed_next(self) -> None:
        """Embed one batch, and come back for the next; what is embedded counts once all of it is."""
        self._embedding = False
        try:
            model = self._embedder.model
            if model != self._model:
                self._model, self._vectors = model, {}
            missing = self._missing()
            if missing:
                vectors = self._embedder.embed([passage(said) for said in missing])
                if self._embedder.model == model:
                    for said, vector in zip(missing, vectors, strict=True):
                        self._vectors[said.name] = (said.fingerprint, vector)
        except EmbedderUnavailable as error:
            _log.warning("tools are found by their words alone: %s", error)
            return
        if self._missing():
            self._embed_soon()
        else:
            self._build()

    def _missing(self) -> Sequence[ToolProfile]:
        have = self._vectors
        lacking = (said for said in self._profiles.values() if have.get(said.name, ("",))[0] != said.fingerprint)
        return list(islice(lacking, _BATCH))
