"""What half of the requests teach about the other half."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from riglm.application.evaluation.dataset import Query, digest
from riglm.application.evaluation.prepared import Prepared
from riglm.application.evaluation.retrieval import CUTS, PredictedRanking, Ranker, measured
from riglm.domain.invocation import Found
from riglm.domain.learning import SIGNALS
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.ports.predictor import PredictorPort

FEWEST: Final = 20
"""Requests that each half must have."""


def halves(queries: Sequence[Query]) -> tuple[list[int], list[int]] | None:
    """The places of the history and of the rest, by hash; None when one is too small to tell anything.

    Requests of one group, or of one wording, come to the same half.
    """
    past = [digest("history" + (query.group or query.text.lower())) & 1 == 1 for query in queries]
    history = [place for place, is_past in enumerate(past) if is_past]
    rest = [place for place, is_past in enumerate(past) if not is_past]
    return (history, rest) if min(len(history), len(rest)) >= FEWEST else None


def taught(prepared: Prepared, predictor: PredictorPort, history: Sequence[int]) -> Ranker:
    """A ranking that has seen the tools of these requests used, each once, in their order."""
    pairs = LearnedPairs()
    ranking = PredictedRanking(predictor, prepared.retriever(pairs), prepared)
    tools = prepared.dataset.tools
    signal = SIGNALS[Found.LISTED]
    for at, place in enumerate(history):
        context = prepared.contexts[place]
        situation = ranking.situation(context)  # as it was before any of the request's tools was called
        for group in prepared.dataset.queries[place].gold:
            tool = tools[group[0]]
            predictor.learn(situation, tool.name, signal)
            pairs.learn(context, tool.name, signal, scope="", at=float(at), description_hash=tool.fingerprint)
    return ranking


def evaluate_usage(
    prepared: Prepared,
    ranker: Ranker,
    rest: Sequence[int],
    cuts: Sequence[int] = CUTS,
    on_ranked: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """The figures of a ranker on the requests that it was not taught."""
    contexts = [prepared.contexts[place] for place in rest]
    gold = [prepared.dataset.queries[place].gold for place in rest]
    return measured(ranker, contexts, gold, cuts, on_ranked)
