"""How often tools are used: the strategy `frequency`, and a statistic of the hybrid."""

from collections.abc import Hashable, Mapping
from time import gmtime
from typing import Final

import numpy as np

from riglm.adapters.prediction.counts import Counts
from riglm.adapters.prediction.features import Features
from riglm.adapters.prediction.mixing import Mixture
from riglm.domain.prediction import Prediction, Scores, Situation
from riglm.ports.predictor import PredictorPort

_EVERYBODY: Final = ""
_HOURS: Final = 4
_STAGES: Final = (1, 2, 3, 5)
_MOMENT_WEIGHT: Final = 0.1
_WHOSE_PRIOR_CALLS: Final = 12.0
_WHO_FADING: Final = 2.0
_HALF_SURE: Final = 100.0
"""Number of calls after which a predictor that only counts reports half of its maximum confidence."""


class Frequency:
    """Use by all, by client and by principal, by time of day and weekday, and by the progress of a session."""

    def __init__(self) -> None:
        self._use = Counts(most_rows=1024, most_tools=1024)
        self._fresh = Counts(most_rows=len(_STAGES) + 2, most_tools=1024)
        self._moment = Counts(most_rows=24 // _HOURS + 7)
        self._whose = Mixture({"own": 2.0, "common": 1.0}, prior_calls=_WHOSE_PRIOR_CALLS)

    def learn(self, features: Features, tool: str, weight: float) -> None:
        """Count a call."""
        whose, column = _who(features.situation), features.column.get(tool)
        if column is not None and len(whose) > 1:
            self._whose.learn(np.stack([self.share(features), self._common(features)]), column, weight)
        for who in whose:
            self._use.add(who, tool, weight)
        for moment in _moments(features.situation.time):
            self._moment.add(moment, tool, weight)
        if tool not in features.ages:
            self._fresh.add("any", tool, weight)
            self._fresh.add(_stage(features), tool, weight)

    def share(self, features: Features) -> Scores:
        """How probable each candidate is by its use alone, backed off from principal to client to all."""
        found = features.uniform
        for who in _who(features.situation):
            found = self._use.share(features, who, found)
        return found

    def _common(self, features: Features) -> Scores:
        return self._use.share(features, _EVERYBODY, features.uniform)

    def fresh_share(self, features: Features) -> Scores:
        """How probable each candidate is among calls of tools that their session had not used before."""
        return self._fresh.share(features, "any", features.uniform)

    def confidence(self) -> float:
        """Return how much was counted recently, between 0 and 1."""
        counted = self._use.total(_EVERYBODY)
        return counted / (counted + _HALF_SURE)

    def signals(self, features: Features) -> Mapping[str, Scores]:
        """`use` by all; `who`, `stage`, `moment`: what is particular to the client, to early or late calls, to a time.

        `who` counts if clients proved to differ, and less the more tools of the session are known.
        """
        fresh, everybody = self.fresh_share(features), self._common(features)
        mixed, _ = self._whose.mix(np.stack([self.share(features), everybody]))
        moment = np.zeros(features.size)
        for name in _moments(features.situation.time):
            moment += np.log(self._moment.share(features, name, everybody) / everybody)
        return {
            "use": features.lift(everybody),
            "who": np.log(mixed / everybody) * _WHO_FADING / (_WHO_FADING + len(features.ages)),
            "stage": np.log(self._fresh.share(features, _stage(features), fresh) / fresh),
            "moment": moment,
        }


class FrequencyPredictor(PredictorPort):
    """Tools that are used often come first: decayed, per principal and client, backed off to all."""

    def __init__(self) -> None:
        self._frequency = Frequency()

    def learn(self, situation: Situation, tool: str, weight: float = 1.0) -> None:
        """Count a call."""
        self._frequency.learn(Features(situation), tool, weight)

    def predict(self, situation: Situation, *, explain: bool = False) -> Prediction:
        """Log-odds against chance."""
        features = Features(situation)
        moment = self._frequency.signals(features)["moment"]
        parts = {"use": features.lift(self._frequency.share(features)), "moment": _MOMENT_WEIGHT * moment}
        scores = parts["use"] + parts["moment"]
        return Prediction(
            scores=scores, contributions=parts if explain else {}, confidence=self._frequency.confidence()
        )


def _who(situation: Situation) -> tuple[Hashable, ...]:
    """Whose use counts, from all to the one."""
    client, principal = situation.client, situation.principal
    return (
        _EVERYBODY,
        *([("client", client)] if client else []),
        *([("principal", principal)] if principal else []),
        *([("both", principal, client)] if principal and client else []),
    )


def _moments(time: float) -> tuple[str, ...]:
    """The parts of the day and of the week in which a time lies, in UTC; none for an unknown time."""
    if not time:
        return ()
    moment = gmtime(time)
    return f"hour {moment.tm_hour // _HOURS}", f"weekday {moment.tm_wday}"


def _stage(features: Features) -> int:
    """How far the session has come, in a few steps of different tools used."""
    return sum(len(features.ages) >= step for step in _STAGES)
