"""Which servers are in use: the strategy `server`, and a statistic of the hybrid."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from riglm.adapters.prediction.counts import Counts
from riglm.adapters.prediction.features import Features
from riglm.domain.prediction import Prediction, Scores, Situation
from riglm.ports.predictor import PredictorPort

_FADING: Final = 0.9
_MOST_CALLS: Final = 20
_LEAST_LIFT: Final = 0.1


class Home:
    """The servers of the tools in use, and which server follows which when a session takes up a new tool."""

    def __init__(self) -> None:
        self._moves = Counts()
        self._within = Counts()

    def learn(self, features: Features, tool: str, weight: float) -> None:
        """Count a move to a new tool's server."""
        if tool in features.ages:
            return
        server = features.server_of(tool)
        self._within.add(server, tool, weight)
        for past in _pasts(features):
            self._moves.add(past, server, weight)

    def near(self, features: Features) -> Scores:
        """How recently a candidate's server was used, between 0 and 1; needs no learning."""
        last: dict[str, float] = {}
        for age, tool in enumerate(reversed(features.calls[-_MOST_CALLS:])):
            last.setdefault(features.server_of(tool), _FADING**age)
        last.pop("", None)
        found: Scores = np.array([last.get(name, 0.0) for name in features.server_names])[features.servers]
        return found

    def shares(self, features: Features) -> tuple[Scores, Scores]:
        """How probable the server of each candidate is, and the candidate within its server."""
        members = np.bincount(features.servers, minlength=len(features.server_names))
        known = np.zeros(features.size)
        trust = np.ones(len(members))
        for name, number in features.server_names.items():
            row = self._within.row(name)
            if row:
                known += features.spread(row)
                trust[number] += self._within.total(name)
        inside: Scores = (known + 1.0 / np.maximum(members, 1)[features.servers]) / trust[features.servers]
        return self._moved(features)[features.servers], inside

    def signals(self, features: Features) -> Mapping[str, Scores]:
        """`server_moves`: how probable the candidate's server is, against chance."""
        moved = self._moved(features)
        return {"server_moves": np.log(moved * moved.size + _LEAST_LIFT)[features.servers]}

    def _moved(self, features: Features) -> Scores:
        """The probability of each server."""
        share: Scores = np.bincount(features.servers, minlength=len(features.server_names)) / max(features.size, 1)
        for past in _pasts(features):
            row = self._moves.row(past)
            if row:
                counts = np.array([row.get(name, 0.0) for name in features.server_names])
                share = (counts + len(row) * share) / (self._moves.total(past) + len(row))
        return share


class ServerPredictor(PredictorPort):
    """Tools of the servers in use, recently used ones first; learns nothing."""

    def __init__(self) -> None:
        self._home = Home()

    def learn(self, situation: Situation, tool: str, weight: float = 1.0) -> None:
        """Nothing is learned."""

    def predict(self, situation: Situation, *, explain: bool = False) -> Prediction:
        """Return how recently the server of each candidate was used, between 0 and 1."""
        scores = self._home.near(Features(situation))
        return Prediction(
            scores=scores,
            contributions={"near_server": scores} if explain else {},
            confidence=float(scores.max(initial=0.0)) / 2,
        )


def _pasts(features: Features) -> tuple[tuple[str, ...], ...]:
    """Return the circumstances of a move, least specific first."""
    return (), (features.server_of(features.calls[-1]),) if features.calls else ("", "first")
