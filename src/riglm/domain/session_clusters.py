"""Session clusters: kinds of work, by the servers and tools that sessions use and by their contexts.

Sessions are compared by how often they call each server, weighted by its rarity (tf-idf, Salton and Buckley 1988), and
by their context vectors. Average-linkage clustering (Sokal and Michener 1958), as nearest-neighbor chains (Murtagh
1983), merges those that are similar. The result does not depend on the order of the sessions.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, pairwise
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from riglm.domain.prediction import Vector
from riglm.domain.schemas.control_api import SessionClusterEntry, ToolCount, ToolPairCount

MAX_CLUSTERED_SESSIONS: Final = 2_000
"""Maximum number of sessions, the latest ones, that are clustered: memory grows with their square."""

MIN_SIMILARITY: Final = 0.55
"""Minimum average similarity of the sessions of two clusters that are merged; 1 is that of equal sessions."""

_CONTEXT_SHARE: Final = 0.4
_MAX_DISTINCTIVE: Final = 5
_MAX_PAIRS: Final = 10
_MAX_TOOLS: Final = 20
_MAX_PAIRED_TOOLS: Final = 64
_MIN_SCORE: Final = 1e-9  # with a single cluster, all are zero but for rounding

Matrix = NDArray[np.float64]
ItemT = TypeVar("ItemT", str, tuple[str, str])


class ClusteredCall(NamedTuple):
    """A tool call, with the upstream server that ran it."""

    tool: str
    server: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SessionProfile:
    """The features of a session: its calls in order, and the vector of its context, None without one."""

    calls: Sequence[ClusteredCall]
    context: Vector | None = None


def cluster_sessions(sessions: Sequence[SessionProfile]) -> list[int]:
    """Return the number of each session's cluster; 0 is the largest."""
    if not sessions:
        return []
    vectors, row, sizes = np.unique(_vectors(sessions), axis=0, return_inverse=True, return_counts=True)
    labels = _merge(vectors @ vectors.T, sizes.astype(np.float64))[row.reshape(-1)].tolist()
    count = Counter(labels)
    number = {label: place for place, label in enumerate(sorted(count, key=lambda label: (-count[label], label)))}
    return [number[label] for label in labels]


def describe_clusters(sessions: Sequence[SessionProfile], labels: Sequence[int]) -> list[SessionClusterEntry]:
    """Return the cluster of each number in `labels`, which are those of `cluster_sessions`."""
    members: dict[int, list[list[str]]] = {label: [] for label in sorted(set(labels))}
    for session, label in zip(sessions, labels, strict=True):
        members[label].append([call.tool for call in session.calls])
    used = [_count(set(calls) for calls in inside) for inside in members.values()]
    overall = sum(used, Counter[str]())
    return [_describe(inside, tools, overall) for inside, tools in zip(members.values(), used, strict=True)]


def _vectors(sessions: Sequence[SessionProfile]) -> Matrix:
    """Unit vectors of the sessions; a session without a context is compared by its calls alone."""
    is_single = len({call.server for session in sessions for call in session.calls}) < 2
    bags = [
        # a single server distinguishes nothing: then the tool counts, or the prefix that a gateway gave it
        Counter(call.tool.partition("__")[0] if is_single else call.server for call in session.calls)
        for session in sessions
    ]
    units = sorted(set(chain.from_iterable(bags)))
    counts = np.array([[bag.get(unit, 0) for unit in units] for bag in bags], np.float64)
    rarity = np.log((1 + len(sessions)) / (counts > 0).sum(0))
    use = _normalize(np.log1p(counts) * rarity)
    size = next((len(session.context) for session in sessions if session.context is not None), 0)
    contexts = np.array([np.zeros(size) if each.context is None else each.context for each in sessions], np.float64)
    parts = (np.sqrt(1 - _CONTEXT_SHARE) * use, np.sqrt(_CONTEXT_SHARE) * _normalize(contexts))
    return _normalize(np.hstack(parts))


def _normalize(rows: Matrix) -> Matrix:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    found: Matrix = rows / np.where(lengths > 0, lengths, 1.0)
    return found


def _merge(similarity: Matrix, sizes: NDArray[np.float64]) -> NDArray[np.intp]:
    """Merge the most similar rows until none are similar enough; `similarity` and `sizes` are overwritten."""
    labels = np.arange(len(sizes))
    remaining = dict.fromkeys(range(len(sizes)))
    nearest_chain: list[int] = []
    np.fill_diagonal(similarity, -np.inf)
    while remaining:
        if not nearest_chain:
            nearest_chain.append(next(iter(remaining)))
        last = nearest_chain[-1]
        nearest = int(similarity[last].argmax())
        if similarity[last, nearest] < MIN_SIMILARITY:  # merging others never makes them more similar to this one
            del remaining[nearest_chain.pop()]
        elif len(nearest_chain) > 1 and similarity[last, nearest] <= similarity[last, nearest_chain[-2]]:
            other = nearest_chain[-2]
            total = sizes[last] + sizes[other]
            merged = (sizes[last] * similarity[last] + sizes[other] * similarity[other]) / total
            similarity[last], similarity[:, last], sizes[last] = merged, merged, total
            similarity[other], similarity[:, other] = -np.inf, -np.inf
            labels[labels == other] = last
            del remaining[other], nearest_chain[-2:]
        else:
            nearest_chain.append(nearest)
    return labels


def _describe(inside: Sequence[Sequence[str]], tools: Counter[str], overall: Counter[str]) -> SessionClusterEntry:
    score = _distinctiveness(tools, overall)
    most_used = _ordered(tools)
    distinctive = sorted((tool for tool, _ in most_used if score[tool] > _MIN_SCORE), key=lambda tool: -score[tool])
    following = _count({(a, b) for a, b in pairwise(calls) if a != b} for calls in inside)
    pairs = _count(combinations(sorted(set(calls))[:_MAX_PAIRED_TOOLS], 2) for calls in inside)
    return SessionClusterEntry(
        sessions=len(inside),
        distinctive=tuple(distinctive or [tool for tool, _ in most_used])[:_MAX_DISTINCTIVE],
        tools=tuple(ToolCount(tool=tool, sessions=count) for tool, count in most_used[:_MAX_TOOLS]),
        transitions=_pair_counts(following),
        pairs=_pair_counts(pairs),
    )


def _distinctiveness(tools: Counter[str], overall: Counter[str]) -> dict[str, float]:
    """The z-score of each tool's log-odds against all other clusters, with a Dirichlet prior of all uses.

    Monroe, Colaresi and Quinn 2008, "Fightin' Words", equations 16 and 22. The prior counts as one use per tool.
    """
    inside, all_ = sum(tools.values()), sum(overall.values())
    weight = len(overall)
    found = {}
    for tool, count in tools.items():
        prior = weight * overall[tool] / all_
        here, elsewhere = count + prior, overall[tool] - count + prior
        odds = np.log(here / max(inside + weight - here, _MIN_SCORE))
        others = np.log(elsewhere / max(all_ - inside + weight - elsewhere, _MIN_SCORE))
        found[tool] = float((odds - others) / np.sqrt(1 / here + 1 / elsewhere))
    return found


def _count(parts: Iterable[Iterable[ItemT]]) -> Counter[ItemT]:
    return Counter(chain.from_iterable(parts))


def _ordered(counts: Counter[ItemT]) -> list[tuple[ItemT, int]]:
    """The items, the most frequent first, and then by name."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _pair_counts(counts: Counter[tuple[str, str]]) -> tuple[ToolPairCount, ...]:
    pairs = _ordered(counts)[:_MAX_PAIRS]
    return tuple(ToolPairCount(first=first, second=second, sessions=count) for (first, second), count in pairs)
