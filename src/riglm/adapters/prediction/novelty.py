"""Which tool comes new to a session: explanations, and their mixture."""

from collections.abc import Collection, Mapping
from typing import Final

import numpy as np

from riglm.adapters.prediction.cooccurrence import Company
from riglm.adapters.prediction.features import Features
from riglm.adapters.prediction.frequency import Frequency
from riglm.adapters.prediction.mixing import Mixture
from riglm.adapters.prediction.sequence import Order
from riglm.adapters.prediction.server import Home
from riglm.adapters.prediction.weighing import Matrix
from riglm.domain.prediction import Relevance, Scores

EXPLANATIONS: Final[Mapping[str, tuple[str, float]]] = {
    "chance": ("frequency", 0.02),
    "follows": ("sequence", 0.2),
    "joins": ("cooccurrence", 0.06),
    "company": ("cooccurrence", 0.06),
    "server": ("server", 0.09),
    "near": ("server", 0.18),
    "near_any": ("server", 0.06),
    "rank": ("context", 0.1),
    "described": ("context", 0.06),
    "near_described": ("context", 0.12),
    "learned": ("learned", 0.08),
}
"""What may explain a fresh tool: the family of its signal, and its share of the mixture at the start."""

_RANK_OFFSET: Final = 3.0
_RANK_POWER: Final = 1.5
_DESCRIBED_SHARE: Final = 0.6
_DESCRIBED_POWER: Final = 1.5
_NEAR_POWER: Final = 1.0
_LEAST_LEARNED: Final = 1e-6
_MOST_BELOW: Final = 4.0
_MOST_ABOVE: Final = 8.0


class Novelty:
    """The probability of each candidate, given that the next tool is one that the session has not used."""

    def __init__(
        self, *, frequency: Frequency, order: Order, company: Company, home: Home, without: Collection[str] = ()
    ) -> None:
        self._frequency = frequency
        self._order = order
        self._company = company
        self._home = home
        self._mixture = Mixture(
            {name: 0.0 if family in without else share for name, (family, share) in EXPLANATIONS.items()}
        )

    def learn(self, explanations: Matrix, target: int, weight: float) -> None:
        """A fresh tool was called; `explanations` are those of the situation before."""
        self._mixture.learn(explanations, target, weight)

    def mix(self, explanations: Matrix) -> tuple[Scores, Matrix]:
        """The mixed probabilities, and the part of each explanation in them."""
        return self._mixture.mix(explanations)

    def explanations(self, features: Features) -> Matrix:
        """A distribution over the fresh candidates by each explanation; zeros where it has nothing to say."""
        use = self._frequency.fresh_share(features)
        joins, company = self._company.shares(features, use)
        server, inside = self._home.shares(features)
        near = self._home.near(features)
        near_any = near / np.bincount(features.servers, minlength=len(features.server_names))[features.servers]
        found = {
            "chance": features.uniform,
            "follows": self._order.share(features, fresh=True),
            "joins": joins,
            "company": company,
            "server": server * inside,
            "near": near * inside,
            "near_any": near_any,
            **_by_context(features.situation.relevance, near_any),
        }
        return _fresh_only(features, found)


def _by_context(relevance: Relevance | None, near: Scores) -> Mapping[str, Scores]:
    if relevance is None:
        return {}
    place = np.empty(near.size)
    place[np.argsort(-relevant(relevance), kind="stable")] = np.arange(near.size)
    described = standard(relevance.described)
    return {
        "rank": (_RANK_OFFSET + place) ** -_RANK_POWER,
        "described": np.exp(_DESCRIBED_POWER * described),
        "near_described": near * np.exp(_NEAR_POWER * described),
        "learned": np.maximum(finite(relevance.learned), 0.0) + _LEAST_LEARNED,
    }


def _fresh_only(features: Features, found: Mapping[str, Scores]) -> Matrix:
    """Each explanation as a distribution over the fresh candidates; zeros where it has nothing to say."""
    table = np.stack([found.get(name, np.zeros(features.size)) for name in EXPLANATIONS])
    table[:, features.used] = 0.0
    totals = table.sum(1, keepdims=True)
    return table / np.where(totals > 0, totals, 1.0)


def relevant(relevance: Relevance) -> Scores:
    """Descriptions of tools and what contexts taught, 0.6 to 0.4: everything else is weighed next to it."""
    found: Scores = _DESCRIBED_SHARE * finite(relevance.described) + (1 - _DESCRIBED_SHARE) * finite(relevance.learned)
    return found


def finite(values: Scores) -> Scores:
    """The values with what is not a number made 0, and what is beyond all bounds 1."""
    return np.nan_to_num(np.asarray(values, np.float64), nan=0.0, posinf=1.0, neginf=0.0)


def standard(values: Scores) -> Scores:
    """The values in standard deviations from their mean, within bounds; zeros when all are alike."""
    values = finite(values)
    spread = float(values.std())
    if spread < 1e-9:
        return np.zeros_like(values)
    found: Scores = np.clip((values - values.mean()) / spread, -_MOST_BELOW, _MOST_ABOVE)
    return found
