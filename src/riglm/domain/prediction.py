"""The input of predictors, and their output."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector: TypeAlias = NDArray[np.float32]
    """An embedding of unit length, or a matrix of such rows."""

    Scores: TypeAlias = NDArray[np.float64]
    """One finite number for each candidate, in the order of the candidates; more is likelier."""
else:  # numpy takes a tenth of a second to import, and a start without prediction does not need it
    Vector = Scores = Any


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Context:
    """The context that a session set; `vector` is None while it is not embedded.

    `model` names the model of the vector: vectors of different models are never compared.
    """

    text: str
    vector: Vector | None = None
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Relevance:
    """How well each candidate fits the context, between 0 and 1 in each of its parts.

    `described` compares with the descriptions of tools, `learned` with the contexts that they were used in;
    `combined` weighs both. `confidence` is the context confidence.
    """

    described: Scores
    learned: Scores
    combined: Scores
    confidence: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PredictionInput:
    """What is known just before a call.

    `candidates` are the tools that could be called, in the catalogue's order, and `servers` the upstream of each, by
    name. `calls` are the session's calls so far, oldest first. `relevance` follows the candidates and is None without a
    context. `principal`, `profile`, `client` and `project` are empty when unknown; `time` is in seconds since the
    epoch.
    """

    candidates: tuple[str, ...]
    calls: tuple[str, ...] = ()
    servers: Mapping[str, str] = field(default_factory=dict)
    context: Context | None = None
    relevance: Relevance | None = None
    principal: str = ""
    profile: str = ""
    client: str = ""
    project: str = ""
    time: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction:
    """What a predictor expects of the rest of a session.

    `scores` are, for each candidate, the probability that the rest of the session needs it. A strategy that cannot
    state probabilities gives any scores and, in `log_odds`, what calibration fits probabilities to: named parts whose
    sum is its best guess of log(p / (1 - p)). Scores below 0 or above 1 are taken for such a part. `contributions` say
    by signal what made the scores, each in the order of the candidates; empty unless asked for. `confidence` lies
    between 0 (nothing is known) and 1. `evidence` is the number of sessions that probabilities were fitted to, the
    running one included once it has called a tool, and `fallback` the name of the strategy that answered in place of
    one that failed.
    """

    scores: Scores
    contributions: Mapping[str, Scores] = field(default_factory=dict)
    confidence: float = 0.0
    log_odds: Mapping[str, Scores] | None = None
    evidence: float = 0.0
    fallback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMatch:
    """A tool that was found: its score between 0 and 1, and in a few words why it was found.

    `probability` estimates how likely the query asks for this tool. It never rises from one hit to the next.
    """

    name: str
    score: float
    probability: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSearchResult:
    """The hits, best first, and the names of the tools that came next.

    With `abstained` nothing fits; then there are no hits, and the nearest tools are in `near`.
    """

    hits: tuple[ToolMatch, ...]
    near: tuple[str, ...]
    abstained: bool


def ranked(names: Sequence[str], scores: Scores | Sequence[float], most: int) -> list[str]:
    """The best `most` names, best first; among equals the order of the names holds. What is no number comes last."""
    given: list[float] = scores.tolist() if hasattr(scores, "tolist") else list(scores)
    keys = [-score if score == score else float("inf") for score in given]  # noqa: PLR0124  # NaN differs from itself
    return [names[index] for index in heapq.nsmallest(most, range(len(names)), key=keys.__getitem__)]
