"""All that prediction works with: models of calls, learned pairs, the index of tools, and the embedder."""

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import islice
from typing import Final
from uuid import UUID

from riglm.application.failing_open import FailingOpen
from riglm.application.owners import ToolOwners
from riglm.application.prediction.prediction_settings import PredictionSettings
from riglm.application.prediction.scope_models import MAX_LEARNED_CALLS, ScopeModels
from riglm.application.worker import Urgency, Worker
from riglm.domain.learning import LearnedPair, PairSource, parts_of_scope
from riglm.domain.prediction import Context, Vector
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.domain.retrieval.retriever import WORDS_ALONE, Retriever, SignalWeights, passage
from riglm.domain.session import Session
from riglm.domain.tool import ToolCatalog, ToolProfile, profile
from riglm.ports.analytics import AnalyticsPort, LearnedPairsDeleted, TrainingSession
from riglm.ports.embedder import EmbedderPort, EmbedderUnavailableError

MAX_TOOLS: Final = 20_000
"""Maximum number of tools that are predicted; others are listed and routed as usual."""

_BATCH: Final = 8
_GROWTH: Final = 1.25
_MAX_LISTS: Final = 256
_log: Final = logging.getLogger("riglm.prediction")


class ToolIndex:
    """Takes note of lists on the event loop, and reads, indexes and embeds what is new in them on the worker.

    Words are indexed at once, and stored vectors as soon as the embedder is open. Other vectors follow in batches, so
    that what a client waits for comes in between, and count as they come. If the embedder answers with another model,
    words count alone until the first vectors of this model are there.
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
        self._read: dict[bytes, None] = {}  # digests of lists that are as they were when they were read
        self._profiles: dict[str, ToolProfile] = {}
        self._words = Retriever([])
        self._model = ""
        self._vectors: dict[str, Vector] = {}  # of the model, by fingerprint
        self._counted = 0
        self._lacking: deque[ToolProfile] = deque()
        self._guarded = FailingOpen(_log, "tools could not be indexed; they are shown and not predicted, and")

    def know(self, catalog: ToolCatalog) -> None:
        """Take note of a list; it costs next to nothing if the list was read and no description changed since."""
        is_reading = self._reading is not None and not self._reading.done()
        if is_reading or catalog.digest not in self._read:
            self._unread.append(catalog)
            self._reading = self._do(self._read_lists)

    @property
    def is_complete(self) -> bool:
        """True if every tool that was read has a vector of the model that answers now."""
        tools, embedded = self.counts()
        return embedded == tools

    async def embedded(self) -> None:
        """Wait until all that was noted so far is read and has its vectors, or will have none."""
        if self._reading is not None:
            await asyncio.wait({asyncio.wrap_future(self._reading)})
        while not self.is_complete and await self._worker.run(lambda: bool(self._lacking), Urgency.BACKGROUND):
            pass  # the worker does batches and this in turn

    def use(self, pairs: LearnedPairs) -> None:
        """Continue with other learned pairs."""
        self._pairs = pairs
        self._reading = self._do(self._combine)

    def begin_embedding(self) -> None:
        """Have stored vectors count, and embed the tools that have none; on the worker, once the embedder is open."""
        self._can_embed = True
        self._embed()

    def answered_by(self, model: str) -> None:
        """Called after the embedder answered with a model: embed what lacks a vector of it, in the background."""
        if self._can_embed and (model != self._model or not (self.is_complete or self._lacking)):
            self._do(self._embed)

    @property
    def weights(self) -> SignalWeights:
        """The weights of words and of meaning in a request that is embedded now."""
        return WORDS_ALONE if self.retriever is None else self.retriever.weights(self._model)

    def confidence(self, context: Context, scope: str) -> float:
        """Return the context confidence, from 0 to 1, by what was learned of tools with their current descriptions."""
        return 0.0 if self.retriever is None else self.retriever.confidence(context, scope=scope)

    def fingerprint(self, tool: str) -> str:
        """Return the fingerprint of a tool's description, empty if the tool is not known."""
        said = self._profiles.get(tool)
        return "" if said is None else said.fingerprint

    def counts(self) -> tuple[int, int]:
        """Return the number of indexed tools, and of those with a vector of the model that answers now."""
        return len(self._profiles), self._counted

    def _do(self, job: Callable[[], None], urgency: Urgency = Urgency.SOON) -> Future[None]:
        def guarded() -> None:
            with self._guarded:
                job()

        return self._worker.submit(guarded, urgency)

    def _read_lists(self) -> None:
        """Read the lists that were noted, and index all tools again if one is new or says something else."""
        changed: dict[str, str] = {}
        is_new = False
        while self._unread:
            catalog = self._unread.popleft()
            if catalog.digest in self._read:
                continue
            for tool in islice(catalog.tools, MAX_TOOLS):
                server, bare_name = self._owners.of(tool.name)
                said = profile(tool, server=server, bare_name=bare_name)
                before = self._profiles.pop(tool.name, None)
                self._profiles[tool.name] = said
                is_new |= before is None
                if before is not None and before.fingerprint != said.fingerprint:
                    changed[tool.name] = said.fingerprint
                    self._read.clear()  # other lists may have the description of before
            self._read[catalog.digest] = None
        for digest in list(islice(self._read, max(0, len(self._read) - _MAX_LISTS))):
            del self._read[digest]
        for name in list(islice(self._profiles, max(0, len(self._profiles) - MAX_TOOLS))):
            del self._profiles[name]
        if changed:
            self._on_changed(changed)
        if is_new or changed:
            self._words = Retriever(list(self._profiles.values()))
            if self._can_embed:
                self._embed()
            else:
                self._combine()

    def _combine(self) -> None:
        """Have the pairs and the vectors count that there are by now."""
        rows = {
            name: self._vectors[said.fingerprint]
            for name, said in self._profiles.items()
            if said.fingerprint in self._vectors
        }
        retriever = self._words.with_pairs(self._pairs)
        self.retriever = retriever.with_vectors(self._model, rows) if rows else retriever
        self._counted = len(rows)

    def _embed(self) -> None:
        """Take the stored vectors of the model that answers now, and begin to embed the tools that have none."""
        kept = self._vectors if self._embedder.model == self._model else {}
        self._model = self._embedder.model
        tools = self._profiles.values()
        self._vectors = {said.fingerprint: kept[said.fingerprint] for said in tools if said.fingerprint in kept}
        lacking = [said for said in tools if said.fingerprint not in kept]
        stored = self._embedder.find_public([passage(said) for said in lacking]) if lacking else []
        for said, vector in zip(lacking, stored, strict=True):
            if vector is not None:
                self._vectors[said.fingerprint] = vector
        was_embedding = bool(self._lacking)
        self._lacking = deque(said for said in lacking if said.fingerprint not in self._vectors)
        self._combine()
        if self._lacking and not was_embedding:
            self._do(self._embed_batch, Urgency.BACKGROUND)

    def _embed_batch(self) -> None:
        """Embed a few tools, and come back for the next."""
        lacking, self._lacking = self._lacking, deque()  # if this fails, they wait until the model answers again
        some = [lacking.popleft() for _ in range(min(_BATCH, len(lacking)))]
        try:
            vectors = self._embedder.embed_public([passage(said) for said in some]) if some else ()
        except EmbedderUnavailableError as error:
            self._combine()
            _log.warning("tools are found by their words alone: %s", error)
            return
        if self._embedder.model != self._model:
            self._embed()
            return
        self._vectors.update(zip((said.fingerprint for said in some), vectors, strict=True))
        self._lacking = lacking
        if lacking:
            self._do(self._embed_batch, Urgency.BACKGROUND)
        if not lacking or len(self._vectors) >= _GROWTH * self._counted:
            self._combine()


_BYTES_PER_PAIR: Final = 2_000


class PairLearner:
    """Learns pairs as they come, and hands them to the recorder."""

    def __init__(
        self,
        pairs: LearnedPairs,
        put: Callable[[LearnedPair | LearnedPairsDeleted, int], None],
        *,
        most_pairs: int,
        names: Callable[[str], str],
    ) -> None:
        """`put` takes a record and its size in bytes; beyond `most_pairs` the oldest and least sure are forgotten.

        `names` gives the keyed hash of the name of a client.
        """
        self.pairs = pairs
        self._put = put
        self.most_pairs = most_pairs
        self._names = names

    def learn(
        self, context: Context, tool: str, signal: float, *, scope: str, at: float, fingerprint: str, session: Session
    ) -> None:
        """Learn that a session used a tool in a context, or said that it belongs to it or, with a signal of 0, not."""
        pair = self.pairs.learn(
            context, tool, signal, scope=scope, at=at, description_hash=fingerprint, session=session.id
        )
        if pair is None:
            return
        teacher = PairSource(
            client_id=session.client_id, client_name=self._names(session.client.name), principal=session.principal
        )
        self._put(replace(pair, session_id=session.id, teacher=teacher), _BYTES_PER_PAIR)
        self._forget(self.pairs.pruned(self.most_pairs))

    def forget(self, fingerprints: Mapping[str, str]) -> None:
        """Forget what was learned of tools under other descriptions than these."""
        self._forget(self.pairs.forget_tools(fingerprints))

    def _forget(self, ids: list[UUID]) -> None:
        if ids:
            self._put(LearnedPairsDeleted(ids=tuple(ids)), 16 * len(ids))


SWITCH_SECONDS: Final = 0.0005
"""While another thread works, the event loop waits no longer for it; by default it is 5 ms."""

_LEARNED_SESSIONS: Final = 300

OnLoop = Callable[[Callable[[], None]], object]
"""Has something done on the event loop, asked from any thread."""


class PredictionState:
    """What was learned, and what learns. Used on the event loop, but for the methods that block."""

    def __init__(
        self,
        settings: PredictionSettings,
        on_loop: OnLoop,
        *,
        worker: Worker,
        learning: Worker,
        owners: ToolOwners,
        open_store: Callable[[], AnalyticsPort],
        embedder: EmbedderPort,
        put: Callable[[LearnedPair | LearnedPairsDeleted, int], None],
        flush: Callable[[], object] = lambda: None,
        key: bytes = b"",
        names: Callable[[str], str] = str,
        clock: Callable[[], float],
        limits_threads: bool = False,
    ) -> None:
        """Tools are indexed and embedded on `worker`, and sessions are learned on `learning`.

        `put` hands a record to the recorder, `flush` blocks for a little until what was put is stored.

        Learned pairs are hashed under `key`. `names` gives the keyed hash of the name of a client, by which a pair
        knows who taught it. `clock` gives seconds since the epoch. With `limits_threads`, settings of the process keep
        prediction from holding up its event loop.
        """
        if limits_threads:
            from threadpoolctl import threadpool_limits  # noqa: PLC0415  # for processes that predict alone

            sys.setswitchinterval(SWITCH_SECONDS)
            threadpool_limits(1, user_api="blas")  # for products this small a second thread would be waited for
        self.embedder = embedder
        self.is_open = False
        """True once the embedder is open and the pairs are restored, or could not be."""
        self._by_principal = settings.by_principal
        self._open_store = open_store
        self._flush = flush
        self._key = key
        self.learner = PairLearner(LearnedPairs(key), put, most_pairs=settings.most_pairs, names=names)
        self.scope_models = ScopeModels(
            settings.strategy.make, self._recorded, lambda tool: owners.of(tool)[0], learning, clock
        )

        def on_changed(fingerprints: Mapping[str, str]) -> None:
            on_loop(lambda: self._forget(fingerprints))

        self.index = ToolIndex(worker, embedder, self.learner.pairs, owners, on_changed)

    def stored_pairs(self) -> Sequence[LearnedPair]:
        """Return the stored pairs of the model that is open; blocks."""
        with self._open_store() as store:
            return store.list_learned_pairs(self.embedder.model, self.learner.most_pairs)

    def restored(self) -> LearnedPairs:
        """Have stored vectors count, and return what the stored pairs teach; blocks."""
        self.index.begin_embedding()
        pairs = LearnedPairs(self._key)
        pairs.restore(self.stored_pairs())
        return pairs

    def use(self, pairs: LearnedPairs) -> None:
        """Go on with other learned pairs."""
        self.learner.pairs = pairs
        self.index.use(pairs)

    def follow(self, settings: PredictionSettings, done: Callable[[], None] | None) -> None:
        """Follow other settings; with `done` the strategy is another, and `done` is called when it has learned."""
        self.learner.most_pairs = settings.most_pairs
        if settings.by_principal != self._by_principal:
            self._by_principal = settings.by_principal
            self.scope_models.clear()
        if done is not None:
            self.scope_models.follow(settings.strategy.make, done)

    def _forget(self, fingerprints: Mapping[str, str]) -> None:
        """Forget what was learned of tools whose descriptions changed to those of these fingerprints."""
        self.learner.forget(fingerprints)
        for tool in fingerprints:
            self.scope_models.forget(tool)

    def _recorded(self, scope: str) -> Sequence[TrainingSession]:
        """Return the latest sessions of a scope; those of all profiles, while none of its profile is."""
        principal, profile = parts_of_scope(scope)
        whose = principal if self._by_principal else None
        self._flush()
        with self._open_store() as store:
            of_profile = store.list_training_sessions(_LEARNED_SESSIONS, 0.0, whose, profile, MAX_LEARNED_CALLS)
            return of_profile or store.list_training_sessions(_LEARNED_SESSIONS, 0.0, whose, None, MAX_LEARNED_CALLS)
