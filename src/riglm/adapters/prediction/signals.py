"""The features of the hybrid, computed from usage statistics, the session and the context.

Features are arrays over all candidates; those that are zero may be left out.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

import numpy as np

from riglm.adapters.prediction.counts import IndexedInput, finite, log_odds
from riglm.adapters.prediction.usage_statistics import UsageStatistics, nearness
from riglm.domain.prediction import Scores
from riglm.domain.retrieval.scoring import standardized

_MIX: Final = (0.4, 0.2, 0.3, 0.1)
_MAX_BELOW, _MAX_ABOVE = 4.0, 8.0
_CALL_FADING: Final = 0.95


def evidence_at_start(usage: UsageStatistics, indexed: IndexedInput) -> Mapping[str, Scores]:
    """Return the evidence for each candidate in a session that has called nothing, in log-odds by family."""
    share, context = log_odds(usage.sessions.share(indexed)), _of_context(indexed, np.zeros(indexed.size))
    if not context:
        return {"frequency": share}
    return {
        "frequency": 0.5 * share,
        "context": 0.8 * context["described"] + 0.4 * context["rank"] - 1.0,
        "learned": 1.3 * context["learned"],
    }


def turn_features(usage: UsageStatistics, indexed: IndexedInput) -> Mapping[str, Scores]:
    """Return the features of calling a new tool and, all zero, a used one."""
    tools, calls = len(indexed.ages), len(indexed.calls)
    features = {
        "constant": 1.0,
        "odds": usage.chains.fresh_odds(indexed),
        "tools": np.log1p(tools),
        "calls": np.log1p(calls),
        "since": np.log1p(calls - indexed.calls.index(tuple(dict.fromkeys(indexed.calls))[-1])),
        "repeated": usage.chains.share(indexed, fresh=False)[indexed.used].max(),
    }
    return {name: np.array([feature, 0.0]) for name, feature in features.items()}


def used_features(usage: UsageStatistics, indexed: IndexedInput) -> Mapping[str, Scores]:
    """Return the features of tools that the session has used."""
    return {
        "follows": log_odds(usage.chains.share(indexed, fresh=False)),
        "age": -np.log1p(indexed.spread(indexed.ages)),
        "again": np.log1p(2 * indexed.spread(_successors(indexed.calls))),
    }


def new_features(usage: UsageStatistics, indexed: IndexedInput) -> Mapping[str, Scores]:
    """Return the features of tools that the session has not used.

    Shares are logarithms of odds; those that depend on the session are relative to `share`, so that 0 is no news.
    """
    share, (within, begins) = usage.sessions.share(indexed), usage.sessions.within(indexed)
    base, near = log_odds(share), nearness(indexed)
    in_use, follows = near > 0, usage.chains.share(indexed, fresh=True)
    company = usage.cooccurrence.share(indexed, share, usage.sessions.sessions)
    joined = np.where(in_use, near, usage.sessions.joined(indexed))
    mixed = np.stack([company, follows, joined * within, share])
    servers_used = Counter(map(indexed.server_of, indexed.ages))
    return {
        "share": base,
        "moment": usage.sessions.moment(indexed),
        "mix": log_odds(np.dot(_MIX, mixed)) - base,
        "follows": log_odds(follows) - base,
        "within": in_use * (log_odds(within) - base),
        "begins": np.log(begins) * ~in_use,
        "last_server": 1.0 * (near == 1.0),
        "near_server": near,
        "server_size": in_use * np.log(indexed.server_sizes),
        "server_part": in_use * indexed.by_server(servers_used) / indexed.server_sizes,
        "words": usage.words.follows(indexed),
        **_of_context(indexed, near),
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


def _successors(calls: tuple[str, ...]) -> Mapping[str, float]:
    """Return how often each tool followed the last one before, decayed by the calls since."""
    found: defaultdict[str, float] = defaultdict(float)
    for place, (before, tool) in enumerate(pairwise(calls), 1):
        if before == calls[-1]:
            found[tool] += _CALL_FADING ** (len(calls) - place)
    return found


def _standard(values: Scores) -> Scores:
    """Return the values in standard deviations from their mean, between -4 and 8; zeros if all are alike."""
    return np.clip(standardized(finite(values)), -_MAX_BELOW, _MAX_ABOVE)
