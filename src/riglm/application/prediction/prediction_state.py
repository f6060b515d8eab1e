"""All that prediction works with: models of calls, learned pairs, the index of tools, and the embedder."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from riglm.application.owners import ToolOwners
from riglm.application.prediction.prediction_settings import PredictionSettings
from riglm.application.prediction.scope_models import MAX_LEARNED_CALLS, ScopeModels
from riglm.application.prediction.tool_index import ToolIndex
from riglm.application.worker import Worker
from riglm.domain.learning import LearnedPair, PairSource, parts_of_scope
from riglm.domain.prediction import Context
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.domain.session import Session
from riglm.ports.analytics import AnalyticsPort, LearnedPairsDeleted, TrainingSession
from riglm.ports.embedder import EmbedderPort

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


def limit_threads() -> None:
    """Have the event loop wait shorter for another thread, and BLAS use one: products this small wait for a second."""
    from threadpoolctl import threadpool_limits  # noqa: PLC0415  # for processes that predict alone

    sys.setswitchinterval(SWITCH_SECONDS)
    threadpool_limits(1, user_api="blas")


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
            limit_threads()
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
