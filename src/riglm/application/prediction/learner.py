"""What calls teach of contexts: the pairs of a context and a tool."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final
from uuid import UUID

from riglm.domain.learning import LearnedPair, Teacher
from riglm.domain.prediction import Context
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.domain.session import Session
from riglm.ports.analytics import PairsForgotten

_BYTES_PER_PAIR: Final = 2_000
_NAMES: Final = 256


class Learner:
    """Learns pairs as they come, and hands them to the recorder."""

    def __init__(
        self,
        pairs: LearnedPairs,
        put: Callable[[LearnedPair | PairsForgotten, int], None],
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
        self,
        context: Context,
        tool: str,
        signal: float,
        *,
        scope: str,
        at: float,
        fingerprint: str,
        session: Session,
    ) -> None:
        """A tool was used in a context, or said to belong to it or not, by the session given."""
        pair = self.pairs.learn(context, tool, signal, scope=scope, at=at, description_hash=fingerprint)
        if pair is None:
            return
        teacher = Teacher(
            client_id=session.client_id,
            client_name=self._names(session.client.name),
            principal=session.principal,
        )
        self._put(replace(pair, session_id=session.id, teacher=teacher), _BYTES_PER_PAIR)
        self._forget(self.pairs.pruned(self.most_pairs))

    def described_anew(self, fingerprints: Mapping[str, str]) -> None:
        """Tools changed what they say of themselves: what was learned of them before does not count any more."""
        self._forget(self.pairs.forget_tools(fingerprints))

    def _forget(self, ids: list[UUID]) -> None:
        if ids:
            self._put(PairsForgotten(ids=tuple(ids)), 16 * len(ids))
