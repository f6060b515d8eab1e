"""`riglm evaluate`: recorded sessions replayed by each strategy, and the prices of what was recorded."""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Final

import typer

from riglm.application.prediction.prediction_settings import Strategy
from riglm.application.reports.figures import read_figures
from riglm.application.reports.report import cost_rows, recorded_figures
from riglm.application.reports.session_replay import ReplayedHistory, replay_history
from riglm.cli.output import (
    MAX_ROWS,
    ConfigOption,
    JsonOption,
    print_json,
    print_nothing_recorded,
    print_table,
    progress,
)
from riglm.cli.store_access import DatabaseOption, find_store, settings_in_use
from riglm.container import Container
from riglm.domain.naming import prefixed
from riglm.domain.schemas.settings import Settings
from riglm.domain.session_cost import MAX_SESSIONS
from riglm.ports.analytics import ToolPinsPort, TrainingSession
from riglm.ports.predictor import PREDICTORS, PredictorPort

_DAY: Final = 86_400.0

StrategiesOption = Annotated[
    list[str] | None,
    typer.Option("--predictor", metavar="K", help="A kind of predictor, any number of times; all by default."),
]
DaysOption = Annotated[
    int | None, typer.Option("--days", metavar="N", min=1, max=36_500, help="Judge the sessions of the last N days.")
]
SinceOption = Annotated[
    datetime | None,
    typer.Option(
        "--since",
        metavar="DATE",
        formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"],
        help="Judge the sessions since then.",
    ),
]


def evaluate(
    predictor: StrategiesOption = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=MAX_ROWS, help="Maximum number of sessions, the latest.")
    ] = MAX_SESSIONS,
    days: DaysOption = None,
    since: SinceOption = None,
    coding_agent: Annotated[
        bool, typer.Option("--coding-agent", help="Price prompts of 20,000 tokens and results of 2,000.")
    ] = False,
    db: DatabaseOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare strategies and prices on your recorded sessions.

    First, the sessions as they happened, in shadow mode as they would have been: price of all model requests, with
    prompt caching, relative to no proxy; requests of a session; first_list: tools in its first list; listed: percent of
    the calls whose tool was in the list or was suggested, counting lists that hid something.

    Then, the same sessions replayed with the lists of each strategy, which learns from all earlier sessions, regardless
    of --days and --since. hit_rate: percent of the calls whose tool was in the list; new_hit_rate: the same for tools
    that the session had not used before; mean_list: tools in the list; reduction: percent of all tools that it did not
    show. Contexts are not recorded as text, so what they add is not measured. Sessions that were shown no list are
    learned from, not judged.
    """
    settings = settings_in_use(config)
    begin, kinds = parse_beginning(days, since), parse_strategies(predictor, settings)
    store = find_store(settings, db)
    found: dict[str, list[dict[str, Any]]] = {"recorded": [], "strategies": []}
    if store is not None:
        with store:
            history, definitions = store.list_training_sessions(limit), definitions_of(store)
            record = read_figures(store, settings.prices.prices(), limit=limit, since=begin)
        for mode in sorted({each.mode for each in record.costs}):
            figures = recorded_figures(record.of(mode), as_coding_agent=coding_agent)
            found["recorded"] += ({"mode": mode, **row} for row in cost_rows(figures))
        if history:
            replays = replay_by_strategy(history, definitions, kinds, settings, begin)
            found["strategies"] = [{"predictor": kind, **replay.figures()} for kind, replay in replays.items()]
    if as_json:
        print_json(found)
    elif not any(found.values()):
        print_nothing_recorded()
    else:
        _print_rows("Recorded sessions: price of model requests, relative to no proxy", found["recorded"])
        _print_rows("What each strategy would have shown", found["strategies"])


def _print_rows(title: str, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        cells = ((_format_cell(column, value) for column, value in row.items()) for row in rows)
        print_table(title, tuple(rows[0]), map(tuple, cells))


def _format_cell(column: str, value: Any) -> Any:
    """Return a value as a table shows it: a price has three decimals, because strategies differ in the third."""
    if value is None:
        return "-"
    return f"{value:.3f}" if column.startswith("price") else value


def parse_beginning(days: int | None, since: datetime | None) -> float:
    """Return from when on sessions are judged, in seconds since the epoch; 0 if all are.

    Raises:
        BadParameter: both are given.
    """
    if days is not None and since is not None:
        raise typer.BadParameter("name either --days or --since", param_hint="--since")
    if since is not None:
        return 0.0 if since.year <= 1970 else since.timestamp()  # years without a time stamp raise
    return 0.0 if days is None else time.time() - days * _DAY


def parse_strategies(asked: Sequence[str] | None, settings: Settings) -> list[str]:
    """Return the kinds of predictors that are compared, each once: those that are given, or all."""
    known = PREDICTORS.names()
    kinds = list(dict.fromkeys(asked or known))
    for kind in kinds:
        if kind not in known:
            raise typer.BadParameter(f"{kind!r} is none of {', '.join(known)}", param_hint="--predictor")
        _create_predictor(kind, settings)
    return kinds


def definitions_of(store: object) -> Mapping[str, bytes]:
    """Return the raw definitions that servers listed last, by the names that clients use; none without pins."""
    pins = store.list_tool_pins() if isinstance(store, ToolPinsPort) else ()
    return {name: pin.seen or pin.definition for pin in pins for name in (pin.name, prefixed(pin.server, pin.name))}


def replay_by_strategy(
    history: Sequence[TrainingSession],
    definitions: Mapping[str, bytes],
    kinds: Sequence[str],
    settings: Settings,
    since: float,
) -> dict[str, ReplayedHistory]:
    """Replay sessions with each strategy, by lists as the configuration asks for them; with a progress bar."""
    replays, prices = {}, settings.prices.prices()
    for kind in kinds:
        strategy = Strategy(name=kind, key=kind, make=partial(_create_predictor, kind, settings))
        with progress(kind, len(history)) as advance:
            replays[kind] = replay_history(
                history,
                strategy,
                settings.filtering,
                prices,
                definitions,
                by_principal=settings.learning.scope == "principal",
                since=since,
                on_session=advance,
            )
    return replays


def _create_predictor(kind: str, settings: Settings) -> PredictorPort:
    """Return a predictor of this kind, with its options if it is the configured one."""
    if kind != settings.predictor.kind:
        chosen = settings.predictor.model_copy(update={"kind": kind, "options": {}})
        settings = settings.model_copy(update={"predictor": chosen})
    return Container(settings=settings).predictor()
