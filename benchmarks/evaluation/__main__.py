"""How well are requests matched, next tools predicted, and what do sessions cost, on public data sets?

    python -m benchmarks.evaluation retrieval|usage|sequences|cost [SET ...] [--data DIR] [--json] [options]

- `retrieval` ranks the catalog for each request; nothing is learned. r@k: share of the needed tools among the first k;
  c@k: share of requests with all of them there; n@10: discounted gain; mrr: one by the rank of the first.
- `usage` learns from half of the requests and ranks for the rest, also without that history (`history` is 0).
- `sequences` predicts each call of each session from those before it. h@k: share of calls whose tool is among the first
  k; new@k: the same for tools that the session had not used before.
- `cost` prices sessions through riglm, without a proxy, and with the tool search of a host, after learning from others.

DIR is a directory of sets or of one set, by default `RIGLM_EVAL_DATA` or `../shared/data`. Settings are those of
./riglm.yaml and the environment.
"""

import argparse
import asyncio
import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from benchmarks.evaluation.cost import evaluate_cost, read_cost_set
from benchmarks.evaluation.dataset import DatasetError, find_sets, read_dataset
from benchmarks.evaluation.retrieval import (
    BASELINES,
    EmbeddedDataset,
    PredictedRanking,
    Ranker,
    baseline,
    evaluate_retrieval,
    evaluate_usage,
    example,
    halves,
    open_embedder,
    prepare,
)
from benchmarks.evaluation.sequences import evaluate_sequences, read_sessions
from riglm.application.prediction.prediction_settings import prediction_settings
from riglm.application.reports.report import cost_rows
from riglm.cli.store_access import read_settings
from riglm.container import Container
from riglm.domain.session_cost import CODING_AGENT, DEFAULT_SIZES
from riglm.ports.embedder import EmbedderPort
from riglm.ports.predictor import PREDICTORS, PredictorPort

_CUTS: Final = {"retrieval": (5, 10, 15, 20), "usage": (5, 10, 15, 20), "sequences": (1, 5, 10, 15)}

Rows = Iterator[dict[str, Any]]


def create_predictor(kind: str) -> PredictorPort:
    """Return a predictor of this kind, without options."""
    settings = read_settings(None)
    chosen = settings.predictor.model_copy(update={"kind": kind, "options": {}})
    return Container(settings=settings.model_copy(update={"predictor": chosen})).predictor()


def _ranker(kind: str, prepared: EmbeddedDataset) -> Ranker:
    if kind in BASELINES:
        return baseline(kind, prepared)
    return PredictedRanking(create_predictor(kind), prepared.retriever(), prepared)


def retrieval(given: argparse.Namespace, embedder: EmbedderPort) -> Rows:
    for directory in find_sets(given.data, given.sets, side=given.side, file="queries.jsonl"):
        prepared = prepare(read_dataset(directory, side=given.side, limit=given.limit or 1_000), embedder)
        for kind in given.predictor or ["embedding"]:
            yield {"set": directory.name, "predictor": kind} | evaluate_retrieval(
                prepared, _ranker(kind, prepared), given.k
            )


def usage(given: argparse.Namespace, embedder: EmbedderPort) -> Rows:
    for directory in find_sets(given.data, given.sets, side=given.side, file="queries.jsonl"):
        dataset = read_dataset(directory, side=given.side, limit=given.limit or 1_000)
        split = halves(dataset.queries)
        if split is None:
            continue
        (history, rest), prepared = split, prepare(dataset, embedder)
        for kind in given.predictor or ["embedding"]:
            row = {"set": directory.name, "predictor": kind}
            yield row | {"history": 0} | evaluate_usage(prepared, _ranker(kind, prepared), rest, given.k)
            if kind not in BASELINES:
                ranker = example(prepared, create_predictor(kind), history)
                yield row | {"history": len(history)} | evaluate_usage(prepared, ranker, rest, given.k)


def sequences(given: argparse.Namespace, embedder: EmbedderPort) -> Rows:
    for directory in find_sets(given.data, given.sets, side=given.side, file="sessions.jsonl"):
        found = read_sessions(directory, side=given.side, limit=given.limit or 3_000)
        prepared = prepare(found.dataset, embedder)
        for kind in given.predictor or PREDICTORS.names():
            figures = evaluate_sequences(
                found, prepared, partial(create_predictor, kind), protocol=given.protocol, cuts=given.k
            )
            yield {"set": directory.name, "predictor": kind} | figures


def cost(given: argparse.Namespace) -> Rows:
    settings, sizes = read_settings(None), CODING_AGENT if given.coding_agent else DEFAULT_SIZES
    rules, prices = settings.filtering, settings.prices.prices()
    strategy = prediction_settings(settings).strategy
    for directory in find_sets(given.data, given.sets, side=given.side, file="sessions.jsonl"):
        found = read_cost_set(directory, side=given.side, max_tools=given.tools)
        if len(found.sessions) > given.learn:
            figures = asyncio.run(
                evaluate_cost(found, rules, prices, strategy, learn=given.learn, judge=given.judge, sizes=sizes)
            )
            for row in cost_rows(figures):
                yield {"set": found.name, "tools": len(found.catalog.tools)} | row


def show(rows: list[dict[str, Any]]) -> None:
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*("-" if value is None else str(value) for value in row.values()))
    Console(width=200).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("retrieval", "usage", "sequences", "cost"))
    parser.add_argument("sets", nargs="*", metavar="SET")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("RIGLM_EVAL_DATA", "../shared/data")))
    parser.add_argument("--side", default="dev", help="which side of each set")
    parser.add_argument(
        "--predictor", action="append", metavar="KIND", help=f"also {', '.join(BASELINES)} for requests"
    )
    parser.add_argument("--k", type=lambda text: [int(part) for part in text.split(",")], metavar="K,K...")
    parser.add_argument("--limit", type=int, metavar="N", help="most requests or sessions of a set, by hash of id")
    parser.add_argument("--protocol", choices=("kfold", "online"), default="kfold")
    parser.add_argument("--tools", type=int, metavar="N", help="most tools of a set: of the servers used most")
    parser.add_argument("--learn", type=int, default=40, metavar="N", help="sessions to learn from before pricing")
    parser.add_argument("--judge", type=int, default=30, metavar="N", help="sessions to price then")
    parser.add_argument("--coding-agent", action="store_true", help="prompts of 20,000 tokens and results of 2,000")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    given = parser.parse_intermixed_args()
    given.k = given.k or _CUTS.get(given.what)
    threadpool_limits(1, user_api="blas")  # as while serving: on a busy machine a second thread is waited for
    try:
        if given.what == "cost":
            rows = list(cost(given))
        else:
            with open_embedder() as embedder:
                measure = {"retrieval": retrieval, "usage": usage, "sequences": sequences}[given.what]
                rows = list(measure(given, embedder))
    except DatasetError as error:
        parser.error(str(error))
    if given.json:
        print(json.dumps(rows, indent=1))
    elif rows:
        show(rows)


if __name__ == "__main__":
    main()
