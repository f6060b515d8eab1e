"""The retriever over all tools that were listed, made and kept up to date off the event loop."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from riglm.application.failing_open import FailingOpen
from riglm.application.owners import ToolOwners
from riglm.application.worker import Urgency, Worker
from riglm.domain.prediction import Context, Vector
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.domain.retrieval.retriever import Retriever, passage
from riglm.domain.retrieval.static_index import WORDS_ALONE, SignalWeights
from riglm.domain.tool import ToolCatalog, ToolProfile, profile
from riglm.ports.embedder import EmbedderPort, EmbedderUnavailableError

MAX_AWAITED: Final = 1_000
"""Tools without a vector that a search waits for: embedding them takes twenty seconds."""

MAX_TOOLS: Final = 20_000
"""Maximum number of tools that are predicted; others are listed and routed as usual."""

_READING_SECONDS: Final = 10.0
_BATCH: Final = 8
_GROWTH: Final = 4  # vectors are stacked again when there are a quarter more of them
_MAX_LISTS: Final = 256
_log: Final = logging.getLogger("riglm.prediction")


@dataclass(slots=True)
class _Vectors:
    """Vectors of one model, by tool, each with the fingerprint of what was embedded."""

    model: str = ""
    rows: dict[str, tuple[str, Vector]] = field(default_factory=dict)

    def fits(self, said: ToolProfile) -> bool:
        """Whether the vector of a tool is there, and of what the tool says now."""
        return self.rows.get(said.name, ("",))[0] == said.fingerprint


class ToolIndex:
    """Takes note of lists on the event loop, and reads, indexes and embeds what is new in them on the worker.

    Words are indexed at once, and stored vectors as soon as the embedder is open. Other vectors follow batch by batch,
    so that what a client waits for comes in between, and count as they come. While another model is taking over, the
    vectors of the last one serve what it embedded.
    """

    def __init__(
        self,
        worker: Worker,
        embedder: EmbedderPort,
        pairs: LearnedPairs,
        owners: ToolOwners,
        on_changed: Callable[[Mapping[str, str]], None],
    ) -> None:
        """`on_changed` is called on the worker with the new fingerprints of tools whose descriptions changed."""
        self.retriever: Retriever | None = None
        self._worker = worker
        self._embedder = embedder
        self._pairs = pairs
        self._owners = owners
        self._on_changed = on_changed
        self._can_embed = False
        self._reading: Future[None] | None = None
        self._unread: deque[ToolCatalog] = deque()
        self._lists: dict[bytes, int] = {}  # lists that were read, and the number of changed descriptions by then
        self._described_anew = 0
        self._last: ToolCatalog | None = None
        self._profiles: dict[str, ToolProfile] = {}
        self._words = Retriever([], pairs=pairs)
        self._serving = _Vectors()
        self._coming = self._serving
        self._lacking: deque[ToolProfile] = deque()
        self._is_embedding = False
        self._counted: Mapping[str, int] = {}
        self._uncounted = 0
        self._guarded = FailingOpen(_log, "tools could not be indexed; they are shown and not predicted, and")

    def know(self, catalog: ToolCatalog) -> None:
        """Take note of a list; it costs next to nothing when no tool says other than when it was read."""
        if catalog is self._last:
            return
        self._last = catalog
        at_rest = self._reading is None or self._reading.done()
        if at_rest and self._lists.get(catalog.digest) == self._described_anew:
            return
        self._unread.append(catalog)
        self._reading = self._do(self._read_all)

    async def read(self) -> None:
        """Wait, a little, until the words of all lists and the pairs that were noted so far are indexed."""
        if self._reading is not None and not self._reading.done():
            await asyncio.wait({asyncio.wrap_future(self._reading)}, timeout=_READING_SECONDS)

    @property
    def is_nearly_complete(self) -> bool:
        """True if so few tools lack a vector that a search may wait for them."""
        tools, embedded = self.counts()
        return tools - embedded <= MAX_AWAITED

    async def embedded(self) -> None:
        """Wait until all that was read so far has its vectors, or will have none."""
        await self.read()
        while not self.is_complete and await asyncio.wrap_future(
            self._worker.submit(lambda: self._is_embedding, Urgency.BACKGROUND)
        ):
            pass  # the worker does batches and this in turn

    @property
    def is_complete(self) -> bool:
        """True if every tool that was read has a vector of the model that answers now."""
        tools, embedded = self.counts()
        return embedded == tools

    def use(self, pairs: LearnedPairs) -> None:
        """Go on with other learned pairs."""
        self._pairs = pairs
        self._reading = self._do(self._count_vectors)

    def begin_embedding(self) -> None:
        """Have stored vectors count, and embed the tools that have none; on the worker, once the embedder is open."""
        self._can_embed = True
        self._embed()

    def answered_by(self, model: str) -> None:
        """The embedder answered, with this model: embed what lacks a vector of it, in the background."""
        if self._can_embed and (model != self._coming.model or (self._lacking and not self._is_embedding)):
            self._do(self._embed)

    @property
    def model(self) -> str:
        """The model of the vectors that serve; empty before the first."""
        return self._serving.model

    @property
    def weights(self) -> SignalWeights:
        """How much words and meaning count in what is asked now."""
        return WORDS_ALONE if self.retriever is None else self.retriever.weights(self._coming.model)

    def confidence(self, context: Context, scope: str) -> float:
        """How sure a context makes us, from 0 to 1, by what was learned of tools as they describe themselves now."""
        return 0.0 if self.retriever is None else self.retriever.confidence(context, scope=scope)

    def fingerprint(self, tool: str) -> str:
        """The fingerprint of a tool's description; empty if it is not known."""
        said = self._profiles.get(tool)
        return said.fingerprint if said is not None else ""

    def counts(self) -> tuple[int, int]:
        """How many tools are indexed, and how many of them by vectors that what is asked now is compared with."""
        return len(self._profiles), self._counted.get(self._coming.model, 0)

    def _do(self, job: Callable[[], None], urgency: Urgency = Urgency.SOON) -> Future[None]:
        def guarded() -> None:
            with self._guarded:
                job()

        return self._worker.submit(guarded, urgency)

    def _read_all(self) -> None:
        described: dict[str, str] = {}
        has_news = False
        while self._unread:
            has_news |= self._read(self._unread.popleft(), described)
        self._forget_oldest()
        if described:
            self._on_changed(described)
        if has_news:
            self._words = Retriever(list(self._profiles.values()), pairs=self._pairs)
            if self._can_embed:
                self._embed()
            else:
                self._count_vectors()

    def _read(self, catalog: ToolCatalog, described: dict[str, str]) -> bool:
        """Whether there are tools that were not known or, added to `described`, say other than they did."""
        if self._lists.get(catalog.digest) == self._described_anew:
            return False
        new: list[str] = []
        reload: dict[str, str] = {}
        for tool in islice(catalog.tools, MAX_TOOLS):
            server, bare_name = self._owners.of(tool.name)
            said = profile(tool, server=server, bare_name=bare_name)
            known = self._profiles.pop(tool.name, None)
            self._profiles[tool.name] = said
            if known is None:
                new.append(tool.name)
            elif known.fingerprint != said.fingerprint:
                reload[tool.name] = said.fingerprint
        self._described_anew += len(reload)
        self._lists.pop(catalog.digest, None)
        self._lists[catalog.digest] = self._described_anew
        if len(self._lists) > _MAX_LISTS:
            del self._lists[next(iter(self._lists))]
        described |= reload
        return bool(new or reload)

    def _forget_oldest(self) -> None:
        for name in list(islice(self._profiles, max(0, len(self._profiles) - MAX_TOOLS))):
            del self._profiles[name]
            self._serving.rows.pop(name, None)
            self._coming.rows.pop(name, None)

    def _count_vectors(self) -> None:
        """Have the vectors count that there are by now, of the model that serves and of the one that takes over."""
        made, counted = self._words.with_pairs(self._pairs), {}
        for vectors in (self._serving, self._coming):
            rows = {name: vectors.rows[name][1] for name, said in self._profiles.items() if vectors.fits(said)}
            if rows and vectors.model not in counted:
                made = made.with_vectors(vectors.model, rows)
                counted[vectors.model] = len(rows)
        self.retriever, self._counted = made, counted
        self._uncounted = 0

    def _embed(self) -> None:
        """Take the stored vectors of the model that answers now, and begin to embed the tools that have none."""
        model = self._embedder.model
        if model != self._coming.model:
            self._coming = _Vectors(model)
        lacking = [said for said in self._profiles.values() if not self._coming.fits(said)]
        stored = self._embedder.find_public([passage(said) for said in lacking]) if lacking else []
        for said, vector in zip(lacking, stored, strict=True):
            if vector is not None:
                self._coming.rows[said.name] = (said.fingerprint, vector)
        self._lacking = deque(said for said in lacking if not self._coming.fits(said))
        if not self._lacking:
            self._take_over()
            return
        self._count_vectors()
        if not self._is_embedding:
            self._is_embedding = True
            self._do(self._embed_some, Urgency.BACKGROUND)

    def _embed_some(self) -> None:
        """Embed one batch, and come back for the next."""
        self._is_embedding = False
        model, coming = self._embedder.model, self._coming
        some = list(islice(self._lacking, _BATCH))
        if some and model == coming.model:
            try:
                vectors = self._embedder.embed_public([passage(said) for said in some])
            except EmbedderUnavailableError as error:
                self._count_vectors()
                _log.warning("tools are found by their words alone: %s", error)
                return
            if self._embedder.model == model:
                for said, vector in zip(some, vectors, strict=True):
                    coming.rows[said.name] = (said.fingerprint, vector)
                    self._lacking.popleft()
                self._uncounted += len(some)
        if self._embedder.model != coming.model:
            self._embed()
        elif self._lacking:
            if self._uncounted * _GROWTH >= self._counted.get(coming.model, 0):
                self._count_vectors()
            self._is_embedding = True
            self._do(self._embed_some, Urgency.BACKGROUND)
        else:
            self._take_over()

    def _take_over(self) -> None:
        self._serving = self._coming
        self._count_vectors()
