"""`riglm evaluate`: measure retrieval and prediction, on data sets and on what riglm recorded."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from riglm.cli import evaluate_retrieval
from riglm.cli.evaluate_retrieval import CacheOption, SideOption
from riglm.cli.options import ConfigOption, JsonOption
from riglm.cli.output import print_json, print_table

if TYPE_CHECKING:
    from riglm.domain.schemas.settings import Settings
    from riglm.ports.analytics import RecordedSession
    from riglm.ports.predictor import PredictorPort

app = typer.Typer(help="Measure retrieval and prediction.", rich_markup_mode=None, no_args_is_help=True)
app.command()(evaluate_retrieval.retrieval)
app.command()(evaluate_retrieval.usage)

BASELINE: Final = "blend"
"""An untuned sum of signals; what a predictor must beat."""

_DEFAULT_CUTS: Final = "1,5,10,15"
_MOST_SESSIONS: Final = 1_000


class WalkOption(StrEnum):
    """How sessions are walked."""

    KFOLD = "kfold"
    ONLINE = "online"


@app.command()
def sequences(
    data: Annotated[
        Path,
        typer.Option("--data", metavar="DIR", help="A directory of sets: NAME/tools.jsonl, NAME/SIDE/sessions.jsonl."),
    ],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAMES...]", help="Sets; all with sessions when none is named.")
    ] = None,
    side: SideOption = "dev",
    predictor: Annotated[
        list[str] | None,
        typer.Option(
            "--predictor",
            metavar="K",
            help="A kind, any number of times; blend is an untuned sum of signals. Default: hybrid, blend.",
        ),
    ] = None,
    k: Annotated[str, typer.Option("--k", metavar="K,K...", help="Lengths of lists to look at.")] = _DEFAULT_CUTS,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many sessions of a set, by hash.")] = 3_000,
    protocol: Annotated[
        WalkOption,
        typer.Option(
            "--protocol",
            help="kfold: learn from four fifths of the sessions, predict the rest; online: from an empty start, learn "
            "from each session after predicting it.",
        ),
    ] = WalkOption.KFOLD,
    coverage: Annotated[
        float | None,
        typer.Option("--coverage", min=0.5, max=0.999, help="Size lists so that they hold this share of the calls."),
    ] = None,
    config: ConfigOption = None,
    cache: CacheOption = None,
    as_json: JsonOption = False,
) -> None:
    """Predict each call of each session from those before it.

    h@k: share of calls whose tool is among the first k; new@k: the same for calls of tools that the session had not
    used before; both in percent. calls and new_calls: how many there were. p50_ms, p99_ms: time of one prediction.
    With --coverage: the share of calls in lists sized for it, their mean length, the length of an unchanging list that
    holds as many calls, and the share of all tools that is not shown. Sets with fewer than 20 sessions are left out.
    """
    from riglm.application.evaluation.prepared import prepare, text_count
    from riglm.application.evaluation.sequences import (
        FEWEST,
        FOLDS,
        evaluate_sequences,
        read_sessions,
        session_set_names,
    )

    cuts, settings = evaluate_retrieval.parse_cuts(k), evaluate_retrieval.read_settings(config)
    found = [read_sessions(data / name, side=side, limit=limit) for name in names or session_set_names(data, side)]
    kinds = predictor or ["hybrid", BASELINE]
    makers = {kind: _maker(kind, settings) for kind in kinds}
    rows: list[dict[str, Any]] = []
    with evaluate_retrieval.open_embedder(settings, cache) as embedder:
        for one in found:
            name = one.dataset.name
            if len(one.sessions) < FEWEST:
                typer.echo(f"{name}: left out, {len(one.sessions)} sessions are too few", err=True)
                continue
            with evaluate_retrieval.show_progress(f"{name}: vectors", text_count(one.dataset)) as advance:
                prepared = prepare(one.dataset, embedder, advance)
            walked = len(one.sessions) * (FOLDS if protocol is WalkOption.KFOLD else 1)
            for kind in kinds:
                with evaluate_retrieval.show_progress(f"{name}: {kind}", walked) as advance:
                    figures = evaluate_sequences(
                        one,
                        prepared,
                        makers[kind],
                        protocol=protocol.value,
                        cuts=cuts,
                        goal=coverage,
                        on_session=advance,
                    )
                told = {"dataset": name, "side": side, "predictor": kind, "protocol": protocol.value}
                rows.append({**told, **figures})
    _show(f"Next tool, {protocol.value}", rows, ("side", "protocol", "goal"), as_json=as_json)


@app.command()
def history(
    predictor: Annotated[
        list[str] | None,
        typer.Option("--predictor", metavar="K", help="A kind of predictor, any number of times; all by default."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="At most so many sessions, the latest.")
    ] = _MOST_SESSIONS,
    db: Annotated[
        Path | None, typer.Option("--db", metavar="F", help="The database; by default the one of the configuration.")
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """What each strategy would have shown in the recorded sessions, had it learned from those before.

    in_list: share of calls whose tool was in the list of that moment; new_in_list: the same for tools that the session
    had not used before; mean_list: tools in the list; reduction: share of all tools that it did not show. Lists are
    sized as the configuration asks (filtering.coverage, min_tools, max_tools). Contexts are not recorded as text, so
    what they add is not measured here.
    """
    from riglm.adapters.prediction.selection import available
    from riglm.application.evaluation.history import evaluate_history

    settings = evaluate_retrieval.read_settings(config)
    recorded = _recorded(settings, db, limit)
    makers = {kind: _maker(kind, settings) for kind in predictor or [*available(), BASELINE]}
    filtering = settings.filtering
    rows = []
    for kind, make in makers.items() if recorded else ():
        with evaluate_retrieval.show_progress(kind, len(recorded)) as advance:
            figures = evaluate_history(
                recorded,
                make(),
                goal=filtering.coverage,
                least=filtering.min_tools,
                most=filtering.max_tools,
                on_session=advance,
            )
        rows.append({"predictor": kind, **figures})
    if not recorded and not as_json:
        typer.echo("nothing recorded yet: put riglm in front of a server, for example `riglm run -- COMMAND`")
        return
    _show("What would have been shown", rows, (), as_json=as_json)


def _recorded(settings: "Settings", db: Path | None, limit: int) -> "Sequence[RecordedSession]":
    from riglm.cli.usage import recorded
    from riglm.domain.errors import ConfigurationError

    if db is not None:
        if not db.is_file():
            raise ConfigurationError(f"{db}: there is no such database — fix: a file that riglm recorded to")
        storage = settings.storage.model_copy(update={"kind": "sqlite", "path": str(db)})
        settings = settings.model_copy(update={"storage": storage})
    store = recorded(settings)
    if store is None:
        return ()
    with store:
        return store.recent_calls(limit)


def _maker(kind: str, settings: "Settings") -> "Callable[[], PredictorPort]":
    """What makes a fresh predictor of a kind; an unknown kind is an error at once."""
    if kind == BASELINE:
        from riglm.adapters.prediction.blend import BlendPredictor

        return BlendPredictor
    evaluate_retrieval.make_predictor(kind, settings)
    return lambda: evaluate_retrieval.make_predictor(kind, settings)


def _show(title: str, rows: Sequence[dict[str, Any]], left_out: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        print_json(list(rows))
        return
    columns = [column for column in (rows[0] if rows else {"dataset": ""}) if column not in left_out]
    print_table(title, columns, [["-" if row[column] is None else row[column] for column in columns] for row in rows])
