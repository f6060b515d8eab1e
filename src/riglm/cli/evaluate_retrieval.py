"""`riglm evaluate retrieval` and `usage`: how well requests find their tools, before and after learning."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from riglm.cli.measuring import (
    CacheOption,
    CutsOption,
    NamesArgument,
    SideOption,
    data_option,
    make_predictor,
    open_embedder,
    parse_cuts,
    parse_kinds,
    read_settings,
    show_rows,
    warn_skipped,
)
from riglm.cli.output import Advance, ConfigOption, JsonOption, progress

if TYPE_CHECKING:
    from riglm.application.evaluation.dataset import Dataset
    from riglm.application.evaluation.retrieval import EmbeddedDataset, Ranker
    from riglm.domain.schemas.settings import Settings

_DEFAULT_PREDICTOR: Final = "embedding"
_DEFAULT_CUTS: Final = "5,10,15,20"
_DEFAULT_LIMIT: Final = 1_000
_HIDDEN: Final = ("side", "model")

DataOption = Annotated[Path, data_option("queries.jsonl")]
PredictorOption = Annotated[
    list[str] | None,
    typer.Option(
        "--predictor",
        metavar="K",
        help="What ranks, any number of times: a kind of predictor (default: embedding, since requests alone have no "
        "calls to go by), or for comparison lexical (words), dense (vectors) or rrf (both by rank).",
    ),
]
LimitOption = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, help="Maximum number of requests of a set, by hash of id.")
]


def retrieval(
    data: DataOption,
    names: NamesArgument = None,
    side: SideOption = "dev",
    predictor: PredictorOption = None,
    k: CutsOption = _DEFAULT_CUTS,
    limit: LimitOption = _DEFAULT_LIMIT,
    config: ConfigOption = None,
    cache: CacheOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rank each catalogue for each request of a set.

    Nothing is learned. r@k: share of the needed tools among the first k, c@k: share of requests with all of them there,
    n@10: discounted gain, mrr: one by the rank of the first, all in percent; p50_ms and p99_ms: time of one ranking,
    embedding not counted.
    """
    from riglm.application.evaluation.retrieval import evaluate_retrieval

    cuts, settings = parse_cuts(k), read_settings(config)
    kinds = _kinds(predictor, settings)
    datasets = _datasets(data, names, side, limit, lambda dataset: "" if dataset.queries else "it has no requests")

    def measure(prepared: "EmbeddedDataset", kind: str, advance: Advance) -> dict[str, Any]:
        return evaluate_retrieval(prepared, _ranker(kind, prepared, settings), cuts, advance)

    rows = _measured(datasets, kinds, settings, cache, measure)
    show_rows("Retrieval, nothing learned", rows, _HIDDEN, as_json=as_json)


def usage(
    data: DataOption,
    names: NamesArgument = None,
    side: SideOption = "dev",
    predictor: PredictorOption = None,
    k: CutsOption = _DEFAULT_CUTS,
    limit: LimitOption = _DEFAULT_LIMIT,
    config: ConfigOption = None,
    cache: CacheOption = None,
    as_json: JsonOption = False,
) -> None:
    """Learn from half of a set's requests, then rank for the rest.

    Which half is decided by hashes. The same half ranked without history is shown next to it (in JSON under
    `without_history`). The figures are those of `retrieval`; what learns nothing is measured once. Sets with fewer than
    20 requests on a half are left out.
    """
    from riglm.application.evaluation.retrieval import BASELINES, MIN, evaluate_usage, example, halves

    cuts, settings = parse_cuts(k), read_settings(config)
    kinds = _kinds(predictor, settings)

    def too_small(dataset: "Dataset") -> str:
        found = f"of its {len(dataset.queries)} requests fewer than {MIN} are on a half"
        return "" if halves(dataset.queries) else found

    def measure(prepared: "EmbeddedDataset", kind: str, advance: Advance) -> dict[str, Any]:
        history, rest = halves(prepared.dataset.queries) or ([], [])
        untaught = evaluate_usage(prepared, _ranker(kind, prepared, settings), rest, cuts, advance)
        if kind in BASELINES:
            return {"history": 0, **untaught}
        ranker = example(prepared, make_predictor(kind, settings), history)
        advance(len(history))
        after = evaluate_usage(prepared, ranker, rest, cuts)
        return {"history": len(history), **after, "without_history": untaught}

    rows = _measured(_datasets(data, names, side, limit, too_small), kinds, settings, cache, measure)
    if not as_json:
        rows = [line for row in rows for line in _with_control(row)]
    show_rows("Usage: half of the requests are history", rows, _HIDDEN, as_json=as_json)


def _kinds(asked: Sequence[str] | None, settings: "Settings") -> list[str]:
    from riglm.application.evaluation.retrieval import BASELINES

    return parse_kinds(asked or [_DEFAULT_PREDICTOR], settings, others=BASELINES)


def _datasets(
    data: Path, names: Sequence[str] | None, side: str, limit: int, left_out: "Callable[[Dataset], str]"
) -> "list[Dataset]":
    """The sets that are asked for, but those for which `left_out` gives a reason; it is an error if there is none."""
    from riglm.application.evaluation.dataset import DatasetError, find_sets, read_dataset

    kept = []
    for directory in find_sets(data, names or (), side=side, file="queries.jsonl"):
        dataset = read_dataset(directory, side=side, limit=limit)
        reason = left_out(dataset)
        if reason:
            warn_skipped(dataset.name, reason)
        else:
            kept.append(dataset)
    if not kept:
        raise DatasetError(f"{data}: no set has requests enough to be measured — fix: more requests, or other sets")
    return kept


def _measured(
    datasets: "Sequence[Dataset]",
    kinds: Sequence[str],
    settings: "Settings",
    cache: Path | None,
    measure: "Callable[[EmbeddedDataset, str, Advance], dict[str, Any]]",
) -> list[dict[str, Any]]:
    from threadpoolctl import threadpool_limits

    from riglm.application.evaluation.retrieval import prepare, text_count

    threadpool_limits(1, user_api="blas")  # as while serving: on a busy machine a second thread is waited for
    rows: list[dict[str, Any]] = []
    with open_embedder(settings, cache) as embedder:
        for dataset in datasets:
            with progress(f"{dataset.name}: vectors", text_count(dataset)) as advance:
                prepared = prepare(dataset, embedder, advance)
            for kind in kinds:
                with progress(f"{dataset.name}: {kind}", len(dataset.queries)) as advance:
                    found = measure(prepared, kind, advance)
                told = {"dataset": dataset.name, "side": dataset.side, "predictor": kind, "model": prepared.model}
                rows.append({**told, **found})
    return rows


def _with_control(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Two lines of a table of one row: without history, and with it."""
    control = row.pop("without_history", None)
    return [row] if control is None else [{**row, "history": 0, **control}, row]


def _ranker(kind: str, prepared: "EmbeddedDataset", settings: "Settings") -> "Ranker":
    from riglm.application.evaluation.retrieval import BASELINES, PredictedRanking, baseline

    if kind in BASELINES:
        return baseline(kind, prepared)
    return PredictedRanking(make_predictor(kind, settings), prepared.retriever(), prepared)
