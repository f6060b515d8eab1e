"""Usage statistics as predictors and as signals of the hybrid: frequency, co-occurrence, sequence, server."""

from collections.abc import Hashable, Mapping
from time import gmtime
from typing import Final

import numpy as np

from riglm.adapters.prediction.features import Counts, Features
from riglm.adapters.prediction.weighing import Mixture
from riglm.domain.prediction import Prediction, PredictionInput, Scores
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
        whose, column = _who(features.prediction_input), features.column.get(tool)
        if column is not None and len(whose) > 1:
            self._whose.learn(np.stack([self.share(features), self._common(features)]), column, weight)
        for who in whose:
            self._use.add(who, tool, weight)
        for moment in _moments(features.prediction_input.time):
            self._moment.add(moment, tool, weight)
        if tool not in features.ages:
            self._fresh.add("any", tool, weight)
            self._fresh.add(_stage(features), tool, weight)

    def share(self, features: Features) -> Scores:
        """How probable each candidate is by its use alone, backed off from principal to client to all."""
        found = features.uniform
        for who in _who(features.prediction_input):
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
        for name in _moments(features.prediction_input.time):
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

    def learn(self, prediction_input: PredictionInput, tool: str, weight: float = 1.0) -> None:
        self._frequency.learn(Features(prediction_input), tool, weight)

    def predict(self, prediction_input: PredictionInput, *, explain: bool = False) -> Prediction:
        features = Features(prediction_input)
        moment = self._frequency.signals(features)["moment"]
        parts = {"use": features.lift(self._frequency.share(features)), "moment": _MOMENT_WEIGHT * moment}
        scores = parts["use"] + parts["moment"]
        return Prediction(
            scores=scores, contributions=parts if explain else {}, confidence=self._frequency.confidence()
        )


def _who(prediction_input: PredictionInput) -> tuple[Hashable, ...]:
    """Whose use counts, from all to the one."""
    client, principal = prediction_input.client, prediction_input.principal
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


_FADING: Final = 0.9
"""How much a tool in use counts next to one that was used later."""

_DISTANT: Final = 0.95
"""How much two tools count together, to the power of the number of calls between them."""


class CooccurrenceCounts:
    """How often a tool joins a session in which another was used, next of all new ones or ever, by their distance."""

    def __init__(self) -> None:
        self._next = Counts()
        self._together = Counts()
        self._sessions = Counts(most_rows=1, most_tools=4096, most_total=1e6)

    def learn(self, features: Features, tool: str, weight: float) -> None:
        """Count the tools in use when a session uses a tool first; each call between the two makes it count less."""
        if tool in features.ages:
            return
        self._sessions.add("", tool, weight)
        for other in features.latest:
            near = weight * _DISTANT ** features.ages[other]
            self._next.add(other, tool, near)
            self._together.add(other, tool, near)
            self._together.add(tool, other, near)

    def shares(self, features: Features, otherwise: Scores) -> tuple[Scores, Scores]:
        """How probable each candidate is to come next, and to come soon, by the tools in use, the latest most."""
        if not features.latest:
            return otherwise, otherwise
        following, ever = np.zeros(features.size), np.zeros(features.size)
        sessions = self._sessions.row("")
        total = 0.0
        for place, tool in enumerate(features.latest):
            weight = _FADING**place
            total += weight
            following += weight * self._next.share(features, tool, otherwise)
            beside = features.spread(self._together.row(tool)) + otherwise
            ever += weight * beside / (sessions.get(tool, 0.0) + 1.0)
        return following / total, np.minimum(ever / total, 1.0)


class CooccurrencePredictor(PredictorPort):
    """Tools that share sessions with those in use, weighted by distance; with none in use, what is used often."""

    def __init__(self) -> None:
        self._frequency = Frequency()
        self._cooccurrences = CooccurrenceCounts()

    def learn(self, prediction_input: PredictionInput, tool: str, weight: float = 1.0) -> None:
        features = Features(prediction_input)
        self._frequency.learn(features, tool, weight)
        self._cooccurrences.learn(features, tool, weight)

    def predict(self, prediction_input: PredictionInput, *, explain: bool = False) -> Prediction:
        features = Features(prediction_input)
        use = self._frequency.share(features)
        _, ever = self._cooccurrences.shares(features, use)
        base, scores = features.lift(use), features.lift(ever)
        parts = {"use": base, "company": scores - base} if explain else {}
        return Prediction(scores=scores, contributions=parts, confidence=self._frequency.confidence())


_MAX_RUN_LENGTH = 4


class MarkovChains:
    """Markov chains of order 2, 1 and 0 with back-off, kept apart for repeats and for tools new to their session."""

    def __init__(self) -> None:
        self._fresh = Counts()
        self._repeat = Counts()
        self._turns = Counts()

    def learn(self, features: Features, tool: str, weight: float) -> None:
        """Count a transition."""
        fresh = tool not in features.ages
        counts = self._fresh if fresh else self._repeat
        for past in _pasts(features, fresh=fresh):
            counts.add(past, tool, weight)
        for past in _rhythms(features):
            self._turns.add(past, "fresh" if fresh else "repeat", weight)

    def share(self, features: Features, *, fresh: bool) -> Scores:
        """How probable each candidate is, given that a fresh tool, or that a repeat comes next."""
        counts = self._fresh if fresh else self._repeat
        found = features.uniform
        for past in _pasts(features, fresh=fresh):
            found = counts.share(features, past, found)
        return found

    def fresh_odds(self, features: Features) -> float:
        """The log-odds that the next tool is one that the session has not used."""
        likely = 0.5
        for past in _rhythms(features):
            row = self._turns.row(past)
            likely = (row.get("fresh", 0.0) + 2 * likely) / (self._turns.total(past) + 2)
        likely = min(max(likely, 1e-3), 1 - 1e-3)
        return float(np.log(likely / (1 - likely)))

    def signals(self, features: Features) -> Mapping[str, Scores]:
        """`follows`, right for fresh tools and for repeats."""
        found = np.where(features.used, self.share(features, fresh=False), self.share(features, fresh=True))
        return {"follows": features.lift(found)}


class SequencePredictor(PredictorPort):
    """What followed the last two tools, the last one, or anything, repeats apart."""

    def __init__(self) -> None:
        self._order = MarkovChains()
        self._frequency = Frequency()

    def learn(self, prediction_input: PredictionInput, tool: str, weight: float = 1.0) -> None:
        features = Features(prediction_input)
        self._order.learn(features, tool, weight)
        self._frequency.learn(features, tool, weight)

    def predict(self, prediction_input: PredictionInput, *, explain: bool = False) -> Prediction:
        features = Features(prediction_input)
        follows = self._order.signals(features)["follows"]
        odds = self._order.fresh_odds(features)
        fresh = -np.log1p(np.exp(np.where(features.used, odds, -odds)))
        parts = {"follows": follows, "fresh": fresh} if explain else {}
        return Prediction(scores=follows + fresh, contributions=parts, confidence=self._frequency.confidence())


def _pasts(features: Features, *, fresh: bool) -> tuple[Hashable, ...]:
    """Return the circumstances of a call, least specific first; what comes new follows the last two different tools."""
    recent = tuple(features.ages)[:2] if fresh else tuple(reversed(features.calls[-2:]))
    return tuple(recent[:order] for order in range(len(recent) + 1))


def _rhythms(features: Features) -> tuple[Hashable, ...]:
    """Return the circumstances that show whether a new tool is due, least specific first."""
    if not features.calls:
        return ("first",)
    last = features.calls[-1]
    run = next((age for age, tool in enumerate(reversed(features.calls)) if tool != last), len(features.calls))
    return "any", (last,), (last, min(run, _MAX_RUN_LENGTH))


_MAX_CALLS: Final = 20
_MIN_LIFT: Final = 0.1


class ServerTransitions:
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
        for past in _server_pasts(features):
            self._moves.add(past, server, weight)

    def near(self, features: Features) -> Scores:
        """How recently a candidate's server was used, between 0 and 1; needs no learning."""
        last: dict[str, float] = {}
        for age, tool in enumerate(reversed(features.calls[-_MAX_CALLS:])):
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
        return {"server_moves": np.log(moved * moved.size + _MIN_LIFT)[features.servers]}

    def _moved(self, features: Features) -> Scores:
        """The probability of each server."""
        share: Scores = np.bincount(features.servers, minlength=len(features.server_names)) / max(features.size, 1)
        for past in _server_pasts(features):
            row = self._moves.row(past)
            if row:
                counts = np.array([row.get(name, 0.0) for name in features.server_names])
                share = (counts + len(row) * share) / (self._moves.total(past) + len(row))
        return share


class ServerPredictor(PredictorPort):
    """Tools of the servers in use, recently used ones first; learns nothing."""

    def __init__(self) -> None:
        self._home = ServerTransitions()

    def learn(self, prediction_input: PredictionInput, tool: str, weight: float = 1.0) -> None:
        """Nothing is learned."""

    def predict(self, prediction_input: PredictionInput, *, explain: bool = False) -> Prediction:
        scores = self._home.near(Features(prediction_input))
        return Prediction(
            scores=scores,
            contributions={"near_server": scores} if explain else {},
            confidence=float(scores.max(initial=0.0)) / 2,
        )


def _server_pasts(features: Features) -> tuple[tuple[str, ...], ...]:
    """Return the circumstances of a move, least specific first."""
    return (), (features.server_of(features.calls[-1]),) if features.calls else ("", "first")
