"""The features of the hybrid, computed from usage statistics, the session and the context."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from riglm.adapters.prediction.counts import IndexedInput, finite, log_odds
from riglm.adapters.prediction.online_logit import Matrix
from riglm.adapters.prediction.usage_statistics import (
    FADING,
    Cooccurrence,
    MarkovChains,
    NameWords,
    SessionCounts,
    nearness,
)
from riglm.domain.prediction import Scores

_MIX: Final = (0.3, 0.2, 0.3, 0.1, 0.1)
_MAX_NEIGHBORS: Final = 8
_NEIGHBOR_DISTANCE: Final = 3.0
_MAX_BELOW, _MAX_ABOVE = 4.0, 8.0
_MIN_SPREAD: Final = 1e-9
_CALL_FADING: Final = 0.95


class UsageSignals:
    """The usage statistics of the hybrid. Features are arrays over all candidates; those that are zero are left out."""

    def __init__(self) -> None:
        self._sessions = SessionCounts()
        self._cooccurrence = Cooccurrence()
        self._chains = MarkovChains()
        self._words = NameWords()

    def learn(self, indexed: IndexedInput, tool: str, weight: float) -> None:
        """Count a call."""
        for statistic in (self._sessions, self._cooccurrence, self._chains, self._words):
            statistic.learn(indexed, tool, weight)

    @property
    def confidence(self) -> float:
        """How much was counted recently, between 0 and 1."""
        return self._sessions.confidence

    def usage(self, indexed: IndexedInput) -> Scores:
        """Return the log-odds that a session uses each candidate."""
        return log_odds(self._sessions.share(indexed))

    def of_first(self, indexed: IndexedInput) -> dict[str, Scores]:
        """Return the evidence for each candidate in a session that has called nothing, in log-odds by family."""
        usage, context = self.usage(indexed), _of_context(indexed, np.zeros(indexed.size))
        if not context:
            return {"frequency": usage}
        return {
            "frequency": 0.5 * usage,
            "context": 0.8 * context["described"] + 0.4 * context["rank"] - 1.0,
            "learned": 1.3 * context["learned"],
        }

    def of_turn(self, indexed: IndexedInput) -> Matrix:
        """Return the features of calling a new tool and, all zero, a used one: an array of 6 x 2."""
        tools, calls = len(indexed.ages), len(indexed.calls)
        since = calls - indexed.calls.index(tuple(dict.fromkeys(indexed.calls))[-1]) if calls else 0
        repeated = float(self._chains.share(indexed, fresh=False)[indexed.used].max(initial=0.0))
        found = np.zeros((6, 2))
        found[:, 0] = 1.0, self._chains.fresh_odds(indexed), *np.log1p((tools, calls, since)), repeated
        return found

    def of_used(self, indexed: IndexedInput) -> Mapping[str, Scores]:
        """Return the features of tools that the session has used."""
        calls = indexed.calls
        return {
            "follows": indexed.lift(self._chains.share(indexed, fresh=False)),
            "age": -np.log1p(indexed.spread(indexed.ages)),
            "again": np.log1p(2 * indexed.spread(_successors(calls, 1))),
            "again_two": np.log1p(2 * indexed.spread(_successors(calls, 2))),
            "uses": np.log1p(indexed.spread({tool: float(calls.count(tool)) for tool in indexed.ages})),
        }

    def of_new(self, indexed: IndexedInput) -> Mapping[str, Scores]:
        """Return the features of tools that the session has not used.

        Shares are logarithms of odds; those that depend on the session are relative to `share`, so that 0 is no news.
        """
        share, (within, begins) = self._sessions.share(indexed), self._sessions.within(indexed)
        base, near = log_odds(share), nearness(indexed)
        in_use, stage = near > 0, float(np.log1p(len(indexed.ages)))
        follows = self._chains.share(indexed, fresh=True)
        found = {
            "share": base,
            "moment": self._sessions.moment(indexed),
            "follows": log_odds(follows) - base,
            "begins": np.log(begins) * ~in_use,
            **_of_context(indexed, near),
        }
        company, most = self._cooccurrence.share(indexed, share, self._sessions.sessions)
        joined = np.where(in_use, near, self._sessions.joined(indexed)[indexed.servers])
        mixed = np.stack([company, follows, joined * within, share, most])
        sizes = np.maximum(indexed.server_sizes, 1.0)[indexed.servers]
        counts = np.bincount(
            [indexed.server_names.get(indexed.server_of(tool), 0) for tool in indexed.ages],
            minlength=len(indexed.server_names),
        )
        return found | {
            "mix": log_odds(np.dot(_MIX, mixed)) - base,
            "within": in_use * (log_odds(within) - base),
            "last_server": 1.0 * (near == 1.0),
            "near_server": near,
            "server_size": in_use * np.log(sizes),
            "server_stage": in_use * stage,
            "server_part": in_use * counts[indexed.servers] / sizes,
            "neighbor": _neighbors(indexed),
            "words": self._words.follows(indexed),
        }


def _of_context(indexed: IndexedInput, near: Scores) -> Mapping[str, Scores]:
    relevance = indexed.prediction_input.relevance
    if relevance is None:
        return {}
    described, place = _standard(relevance.described), np.empty(indexed.size)
    place[np.argsort(-finite(relevance.combined), kind="stable")] = np.arange(indexed.size)
    return {
        "rank": -np.log1p(place),
        "described": described,
        "described_near": described * near,
        "learned": _standard(relevance.learned) * min(max(relevance.confidence, 0.0), 1.0),
    }


def _successors(calls: tuple[str, ...], order: int) -> dict[str, float]:
    """Return how often each tool followed the last `order` calls before, decayed by the calls since."""
    found: dict[str, float] = {}
    past = calls[-order:]
    for end in range(order, len(calls)):
        if calls[end - order : end] == past:
            found[calls[end]] = found.get(calls[end], 0.0) + _CALL_FADING ** (len(calls) - end)
    return found


def _neighbors(indexed: IndexedInput) -> Scores:
    """Return the maximum of 0.9^n · exp(-d / 3) over the n-th latest tools of its server, with d places between."""
    recent = [tool for tool in indexed.latest[:_MAX_NEIGHBORS] if tool in indexed.column and indexed.server_of(tool)]
    if not recent:
        return np.zeros(indexed.size)
    places = np.array([indexed.column[tool] for tool in recent])[:, None]
    near = np.exp(-np.abs(np.arange(indexed.size) - places) / _NEIGHBOR_DISTANCE)
    found: Scores = (
        near * (indexed.servers == indexed.servers[places]) * FADING ** np.arange(len(recent))[:, None]
    ).max(0)
    return found


def _standard(values: Scores) -> Scores:
    """Return the values in standard deviations from their mean, between -4 and 8; zeros if all are alike."""
    values = finite(values)
    deviations = values - values.mean()
    spread = float(np.sqrt(np.square(deviations).mean()))
    if spread < _MIN_SPREAD:
        return np.zeros_like(values)
    found: Scores = np.clip(deviations / spread, -_MAX_BELOW, _MAX_ABOVE)
    return found
