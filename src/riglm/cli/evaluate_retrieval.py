"""`riglm evaluate retrieval` and `usage`: how well requests find their tools, before and after learning."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from riglm.cli.options import ConfigOption, JsonOption
from riglm.cli.output import print_json, print_table

if TYPE_CHECKING:
    from riglm.application.evaluation.prepared import Prepared
    from riglm.application.evaluation.retrieval import Ranker
    from riglm.domain.schemas.settings import Settings
    from riglm.ports.embedder import EmbedderPort
    from riglm.ports.predictor import PredictorPort

Advance: TypeAlias = Callable[[int], None]

_DEFAULT_PREDICTOR: Final = "embedding"
_DEFAULT_CUTS: Final = "5,10,15,20"
_DEFAULT_LIMIT: Final = 1_000

DataOption = Annotated[
    Path, typer.Option("--data", metavar="DIR", help="A directory of sets: NAME/tools.jsonl, NAME/SIDE/queries.jsonl.")
]
SideOption = Annotated[str, typer.Option("--side", help="Which side of each set is measured; sides are never mixed.")]
PredictorOption = Annotated[
    list[str] | None,
    typer.Option(
        "--predictor",
        metavar="K",
        help="What ranks, any number of times: a kind of predictor (default: embedding, since requests alone have no "
        "calls to go by), or for comparison lexical (words), dense (vectors) or rrf (both by rank).",
    ),
]
CutsOption = Annotated[str, typer.Option("--k", metavar="K,K...", help="How many of the first tools are looked at.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, help="At most so many requests of a set, by hash of id.")]
NamesArgument = Annotated[list[str] | None, typer.Argument(metavar="[NAMES...]", help="Sets; all when none is named.")]
CacheOption = Annotated[
    Path | None,
    typer.Option("--cache", metavar="F", help="Where vectors are kept for the next time; by default in the cache."),
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
    """Rank each catalogue for each request of a set; nothing is learned.

    r@k: share of the needed tools among the first k, c@k: share of requests with all of them there, n@10: discounted
    gain, mrr: one by the rank of the first, all in percent; p50 and p99: milliseconds for one ranking, embedding not
    counted.
    """
    from riglm.application.evaluation.retrieval import evaluate_retrieval

    def measure(prepared: "Prepared", kind: str, settings: "Settings", advance: Advance) -> dict[str, Any]:
        return evaluate_retrieval(prepared, _ranker(kind, prepared, settings), parse_cuts(k), advance)

    rows = _measured(data, names or [], side, predictor or [], limit, read_settings(config), cache, measure)
    show_rows("Retrieval, nothing learned", rows, as_json=as_json)


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
    """Half of a set's requests, by hash, are history: learn from them, then rank for the rest.

    The same half ranked without history stands beside it (in JSON under `without_history`). The figures are those of
    `retrieval`; what learns nothing is measured once. Sets with fewer than 20 requests on a half are left out.
    """
    from riglm.application.evaluation.retrieval import BASELINES
    from riglm.application.evaluation.usage import evaluate_usage, halves, taught

    def measure(prepared: "Prepared", kind: str, settings: "Settings", advance: Advance) -> dict[str, Any] | None:
        split = halves(prepared.dataset.queries)
        if split is None:
            return None
        history, rest = split
        untaught = evaluate_usage(prepared, _ranker(kind, prepared, settings), rest, parse_cuts(k), advance)
        if kind in BASELINES:
            return {"history": 0, **untaught}
        ranker = taught(prepared, make_predictor(kind, settings), history)
        advance(len(history))
        after = evaluate_usage(prepared, ranker, rest, parse_cuts(k))
        return {"history": len(history), **after, "without_history": untaught}

    rows = _measured(data, names or [], side, predictor or [], limit, read_settings(config), cache, measure)
    if not as_json:
        rows = [line for row in rows for line in _with_control(row)]
    show_rows("Usage: half of the requests are history", rows, as_json=as_json)


def _measured(
    data: Path,
    names: Sequence[str],
    side: str,
    kinds: Sequence[str],
    limit: int,
    settings: "Settings",
    cache: Path | None,
    measure: Callable[["Prepared", str, "Settings", Advance], dict[str, Any] | None],
) -> list[dict[str, Any]]:
    from threadpoolctl import threadpool_limits

    from riglm.application.evaluation.dataset import read_dataset, set_names
    from riglm.application.evaluation.prepared import prepare, text_count

    threadpool_limits(1, user_api="blas")  # as while serving: on a busy machine a second thread is waited for
    rows: list[dict[str, Any]] = []
    datasets = [read_dataset(data / name, side=side, limit=limit) for name in names or set_names(data, side)]
    with open_embedder(settings, cache) as embedder:
        for dataset in datasets:
            with show_progress(f"{dataset.name}: vectors", text_count(dataset)) as advance:
                prepared = prepare(dataset, embedder, advance)
            for kind in kinds or [_DEFAULT_PREDICTOR]:
                with show_progress(f"{dataset.name}: {kind}", len(dataset.queries)) as advance:
                    found = measure(prepared, kind, settings, advance)
                if found is not None:
                    told = {"dataset": dataset.name, "side": side, "predictor": kind, "model": prepared.model}
                    rows.append({**told, **found})
    return rows


def _with_control(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Two lines of a table of one row: without history, and with it."""
    control = row.pop("without_history", None)
    return [row] if control is None else [{**row, "history": 0, **control}, row]


def _ranker(kind: str, prepared: "Prepared", settings: "Settings") -> "Ranker":
    from riglm.application.evaluation.retrieval import BASELINES, PredictedRanking, baseline

    if kind in BASELINES:
        return baseline(kind, prepared)
    return PredictedRanking(make_predictor(kind, settings), prepared.retriever(), prepared)


def make_predictor(kind: str, settings: "Settings") -> "PredictorPort":
    """A predictor of this kind, without options."""
    from riglm.container import build_predictor

    chosen = settings.predictor.model_copy(update={"kind": kind, "options": {}})
    return build_predictor(settings.model_copy(update={"predictor": chosen}))


def read_settings(config: Path | None) -> "Settings":
    """The settings that a configuration file makes."""
    from riglm.adapters.configuration.loading import Options, load

    return load(Options(config=config, with_servers=False)).settings


@contextlib.contextmanager
def open_embedder(settings: "Settings", cache: Path | None) -> Iterator["EmbedderPort"]:
    """The configured embedder; its vectors are kept in a file of their own, apart from what riglm recorded."""
    import platformdirs

    from riglm.adapters.analytics.vectors import SqlVectors
    from riglm.adapters.embedding.building import build_embedder

    file = cache or Path(platformdirs.user_cache_dir("riglm", appauthor=False)) / "evaluation.sqlite"
    file.parent.mkdir(parents=True, exist_ok=True)
    vectors = SqlVectors(f"sqlite:///{file}")
    try:
        with build_embedder(settings.embedder, vectors) as embedder:
            yield embedder
    finally:
        vectors.close()


@contextlib.contextmanager
def show_progress(text: str, total: int) -> Iterator[Advance]:
    """A progress bar on stderr while it is a terminal; what is given counts steps that are done."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(text, total=total)
        yield lambda count: progress.advance(task, count)


def parse_cuts(text: str) -> list[int]:
    """The numbers of a list like 5,10,15, in ascending order."""
    try:
        cuts = sorted({int(part) for part in text.split(",")})
    except ValueError:
        cuts = []
    if not cuts or cuts[0] < 1:
        raise typer.BadParameter(f"{text!r} is no list of numbers from 1 on, like {_DEFAULT_CUTS}", param_hint="--k")
    return cuts


def show_rows(title: str, rows: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    """Print rows of figures as a table, or as JSON."""
    if as_json:
        print_json(rows)
        return
    columns = [column for column in (rows[0] if rows else {"dataset": ""}) if column not in {"side", "model"}]
    print_table(title, columns, [[row[column] for column in columns] for row in rows])
