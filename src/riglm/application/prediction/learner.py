"""What calls teach: the predictor, and the pairs of a context and a tool."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final
from uuid import UUID

from riglm.domain.invocation import Found
from riglm.domain.learning import SIGNALS, LearnedPair
from riglm.domain.prediction import Context, Situation
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.ports.analytics import PairsForgotten
from riglm.ports.predictor import PredictorPort

_BYTES_PER_PAIR: Final = 2_000


class Learner:
    """Learns from calls as they come, and hands what has to last to the recorder."""

    def __init__(
        self,
        predictor: PredictorPort,
        pairs: LearnedPairs,
        put: Callable[[LearnedPair | PairsForgotten, int], None],
        *,
        most_pairs: int,
    ) -> None:
        """`put` takes a record and its size in bytes; beyond `most_pairs` the oldest and least sure are forgotten."""
        self.predictor = predictor
        self.pairs = pairs
        self._put = put
        self._most_pairs = most_pairs

    def called(
        self, situation: Situation, tool: str, found: Found, *, scope: str, fingerprint: str, session_id: UUID
    ) -> None:
        """A call of `tool` was made in `situation`, by the session given."""
        signal = SIGNALS[found]
        self.predictor.learn(situation, tool, signal)
        if situation.context is not None:
            self.paired(
                situation.context,
                tool,
                signal,
                scope=scope,
                at=situation.time,
                fingerprint=fingerprint,
                session_id=session_id,
            )

    def paired(
        self,
        context: Context,
        tool: str,
        signal: float,
        *,
        scope: str,
        at: float,
        fingerprint: str,
        session_id: UUID,
    ) -> None:
        """A tool was used in a context, or said to belong to it, by the session given."""
        pair = self.pairs.learn(context, tool, signal, scope=scope, at=at, description_hash=fingerprint)
        self._put(replace(pair, session_id=session_id), _BYTES_PER_PAIR)
        self._forget(self.pairs.pruned(self._most_pairs))

    def described_anew(self, tool: str, fingerprint: str) -> None:
        """A tool changed what it says of itself: what was learned of it does not count any more."""
        self._forget(self.pairs.forget_tool(tool, fingerprint))

    def _forget(self, ids: list[UUID]) -> None:
        if ids:
            self._put(PairsForgotten(ids=tuple(ids)), 16 * len(ids))
