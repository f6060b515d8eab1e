"""Learned pairs of this process, handed to the recorder as they change."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final
from uuid import UUID

from riglm.domain.learning import LearnedPair, PairSource
from riglm.domain.prediction import Context
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.domain.session import Session
from riglm.ports.analytics import LearnedPairsDeleted

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
