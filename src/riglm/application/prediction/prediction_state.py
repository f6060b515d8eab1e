"""All that prediction works with, loaded on the worker."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final
from uuid import UUID

from riglm.application.owners import ToolOwners
from riglm.application.prediction.calibration import CalibratedPredictor
from riglm.application.prediction.prediction_settings import PredictionSettings
from riglm.application.prediction.scope_models import OnLoop, ScopeModel, ScopeModels
from riglm.application.prediction.tool_index import ToolIndex
from riglm.application.worker import Worker
from riglm.domain.learning import LearnedPair, PairSource, parts_of_scope
from riglm.domain.prediction import Context, PredictionInput
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.domain.session import Session
from riglm.ports.analytics import AnalyticsPort, LearnedPairsDeleted, TrainingSession
from riglm.ports.embedder import EmbedderPort
from riglm.ports.predictor import PredictorPort

_BYTES_PER_PAIR: Final = 2_000
_NAMES: Final = 256


class Learner:
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
        self._names = lru_cache(_NAMES)(names)

    def paired(
        self, context: Context, tool: str, signal: float, *, scope: str, at: float, fingerprint: str, session: Session
    ) -> None:
        """A tool was used in a context, or said to belong to it or not, by the session given."""
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

    def described_anew(self, fingerprints: Mapping[str, str]) -> None:
        """Forget what was learned of tools whose descriptions changed."""
        self._forget(self.pairs.forget_tools(fingerprints))

    def _forget(self, ids: list[UUID]) -> None:
        if ids:
            self._put(LearnedPairsDeleted(ids=tuple(ids)), 16 * len(ids))


_REPLAYED_SESSIONS: Final = 300
_log: Final = logging.getLogger("riglm.prediction")


@dataclass(slots=True, kw_only=True)
class PredictionState:
    """What was learned, and what learns. Read and changed on the event loop once it is loaded."""

    scope_models: ScopeModels
    pairs: LearnedPairs
    learner: Learner
    index: ToolIndex
    embedder: EmbedderPort

    plan: PredictionSettings | None = None
    """What it was made by, None while that is what riglm was started with."""

    is_closed: bool = False
    """True once the embedder was closed."""

    opening: Future[None] | None = None
    """Done when the embedder is open, or could not be opened."""

    def open(self, on_open: Callable[[], object]) -> None:
        """Open the embedder on a separate thread, and call `on_open` there afterwards."""
        opening = self.opening = Future()

        def run() -> None:
            try:
                self.embedder.__enter__()
                if self.is_closed:
                    self.close()
            except Exception as error:  # noqa: BLE001  # raised where the embedder is used
                opening.set_exception(error)
            else:
                opening.set_result(None)
            on_open()

        threading.Thread(target=run, name="riglm-embedder-opening", daemon=True).start()

    @property
    def is_open(self) -> bool:
        """True once the embedder is open, or could not be opened."""
        return self.opening is not None and self.opening.done()

    @property
    def has_no_model(self) -> bool:
        """True if nothing compares meanings: the model cannot be used, or none is configured."""
        return self.is_open and self.embedder.status().semantic_quality != "high"

    def opened_embedder(self) -> EmbedderPort:
        """Return the embedder once it is open; blocks."""
        if self.opening is not None:
            self.opening.result()
        return self.embedder

    def close(self) -> None:
        """Close the embedder, on any thread."""
        self.is_closed = True
        if self.opening is not None:
            self.embedder.__exit__(None, None, None)

    def recalled(self, pairs: LearnedPairs) -> None:
        """Go on with the pairs of earlier runs."""
        self.pairs = pairs
        self.learner.pairs = pairs
        self.index.use(pairs)

    def relearned(self, pairs: LearnedPairs) -> None:
        """Continue with these pairs, and learn everything else again."""
        self.scope_models.reread()
        self.recalled(pairs)

    def follow(self, plan: PredictionSettings, on_reload: Callable[[], None] | None, *, forget: bool = False) -> None:
        """Follow a new plan; with `on_reload` all scope models are rebuilt by it, and it is called when they are.

        With `forget`, the shared model is not used meanwhile.
        """
        self.plan = plan
        self.learner.most_pairs = plan.most_pairs
        if on_reload is not None:
            self.scope_models.reload(on_reload, forget=forget)

    def with_relevance(self, prediction_input: PredictionInput, scope: str) -> PredictionInput:
        """The situation with how well each candidate fits its context, if it has one."""
        retriever = self.index.retriever
        if prediction_input.context is None or retriever is None:
            return prediction_input
        relevance = retriever.relevance(prediction_input.context, prediction_input.candidates, scope=scope)
        return replace(prediction_input, relevance=relevance)


class PredictionStateLoader:
    """What earlier runs left to know, brought back on the worker: first what the predictor learned, then the pairs.

    An unavailable store means a cold start, and is logged.
    """

    def __init__(
        self,
        *,
        open_store: Callable[[], AnalyticsPort],
        make_predictor: Callable[[], PredictorPort],
        make_embedder: Callable[[], EmbedderPort],
        put: Callable[[LearnedPair | LearnedPairsDeleted, int], None],
        flush: Callable[[], object] = lambda: None,
        most_pairs: int,
        key: bytes = b"",
        names: Callable[[str], str] = str,
        by_principal: bool,
    ) -> None:
        """`put` hands a record to the recorder, `flush` waits a little until what was put is stored; on the worker.

        Of learned pairs at most `most_pairs` are kept, hashed under `key`.

        `names` gives the keyed hash of the name of a client, by which a pair knows who taught it.
        With `by_principal`, scopes are principals; otherwise there is one scope, the empty one, for all calls.
        """
        self._open_store = open_store
        self._make_predictor = make_predictor
        self._make_embedder = make_embedder
        self._put = put
        self._flush = flush
        self._most_pairs = most_pairs
        self._key = key
        self._names = names
        self._by_principal = by_principal
        self._plan: PredictionSettings | None = None

    def follow(self, plan: PredictionSettings) -> None:
        """Make from now on what another plan asks for; on any thread."""
        self._plan = plan
        self._make_predictor = plan.strategy.make
        self._most_pairs = plan.most_pairs
        self._by_principal = plan.by_principal

    def load(self, worker: Worker, owners: ToolOwners, on_loop: OnLoop, clock: Callable[[], float]) -> PredictionState:
        """Return what learns; no model is loaded, and neither past sessions nor pairs are known yet."""
        plan = self._plan
        embedder, pairs = self._make_embedder(), LearnedPairs(self._key)
        scope_models = ScopeModels(self._cold, self._recorded, lambda tool: owners.of(tool)[0], worker, on_loop, clock)
        learner = Learner(pairs, self._put, most_pairs=self._most_pairs, names=self._names)

        def described_anew(fingerprints: Mapping[str, str]) -> None:
            def forget() -> None:
                learner.described_anew(fingerprints)
                for tool in fingerprints:
                    scope_models.forget(tool)

            on_loop(forget)

        return PredictionState(
            scope_models=scope_models,
            pairs=pairs,
            learner=learner,
            index=ToolIndex(worker, embedder, pairs, owners, described_anew),
            embedder=embedder,
            plan=plan,
        )

    def recall(self, knowledge: PredictionState) -> LearnedPairs:
        """Return the pairs that were learned with the model, and have the stored vectors of tools count; blocks."""
        model = knowledge.opened_embedder().model
        knowledge.index.begin_embedding()
        try:
            return self._restored(model)
        except Exception:  # noqa: BLE001  # prediction starts cold rather than not at all
            _log.warning("learned pairs could not be loaded: contexts start cold", exc_info=True)
            return LearnedPairs(self._key)

    def again(self, knowledge: PredictionState) -> Callable[[], None]:
        """Learn again from what the store holds now; the result puts it into use and is for the event loop.

        If the store fails, what was learned before stays in use.
        """
        pairs = self._restored(knowledge.opened_embedder().model)
        return lambda: knowledge.relearned(pairs)

    def _cold(self) -> ScopeModel:
        return ScopeModel(predictor=CalibratedPredictor(self._make_predictor()))

    def _recorded(self, scope: str) -> Sequence[TrainingSession]:
        """Return the latest sessions of a scope; those of all profiles, while none of its profile is."""
        principal, profile = parts_of_scope(scope)
        self._flush()
        with self._open_store() as store:
            whose = principal if self._by_principal else None
            if of_profile := store.recent_calls(_REPLAYED_SESSIONS, principal=whose, profile=profile):
                return of_profile
            return store.recent_calls(_REPLAYED_SESSIONS, principal=whose)

    def _restored(self, model: str) -> LearnedPairs:
        pairs = LearnedPairs(self._key)
        with self._open_store() as store:
            pairs.restore(store.list_learned_pairs(model, self._most_pairs))
        return pairs
