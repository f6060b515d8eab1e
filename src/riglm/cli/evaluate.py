"""`riglm evaluate`: measure retrieval, prediction and price, on data sets and on what riglm recorded."""

from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from riglm.cli import evaluate_retrieval
from riglm.cli.measuring import (
    CacheOption,
    CutsOption,
    NamesArgument,
    SideOption,
    data_option,
    make_predictor,
    open_embedder,
    parse_cuts,
    read_settings,
    settings_in_use,
    show_rows,
    warn_skipped,
)
from riglm.cli.output import ConfigOption, JsonOption, progress
from riglm.cli.replaying import (
    DatabaseOption,
    DaysOption,
    SessionsOption,
    SinceOption,
    StrategiesOption,
    beginning,
    recorded_sessions,
    replayed,
    store_of,
    strategies,
)
from riglm.domain.errors import UnusableInputError
from riglm.domain.session_cost import CODING_AGENT, DEFAULT_SIZES, MAX_SESSIONS, SessionSizes

if TYPE_CHECKING:
    from riglm.application.evaluation.sequences import SessionSet
    from riglm.domain.schemas.settings import Settings

app = typer.Typer(help="Measure retrieval, prediction and price.", rich_markup_mode=None, no_args_is_help=True)
app.command()(evaluate_retrieval.retrieval)
app.command()(evaluate_retrieval.usage)

_DEFAULT_CUTS: Final = "1,5,10,15"


class ProtocolOption(StrEnum):
    """How sessions are walked."""

    KFOLD = "kfold"
    ONLINE = "online"


@app.command()
def sequences(
    data: Annotated[Path, data_option("sessions.jsonl")],
    names: NamesArgument = None,
    side: SideOption = "dev",
    predictor: StrategiesOption = None,
    k: CutsOption = _DEFAULT_CUTS,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="Maximum number of sessions of a set, by hash of id.")
    ] = 3_000,
    protocol: Annotated[
        ProtocolOption,
        typer.Option(
            "--protocol",
            metavar="kfold|online",
            help="kfold: learn from four fifths of the sessions, predict the rest; online: from an empty start, learn "
            "from each session after predicting it.",
        ),
    ] = ProtocolOption.KFOLD,
    config: ConfigOption = None,
    cache: CacheOption = None,
    as_json: JsonOption = False,
) -> None:
    """Predict each call of each session from those before it.

    h@k: share of calls whose tool is among the first k; new@k: the same for calls of tools that the session had not
    used before; both in percent. calls and new_calls: how many there were. p50_ms, p99_ms: time of one prediction.
    Sets with fewer than 20 sessions of two calls or more are left out.
    """
    from riglm.application.evaluation.retrieval import prepare, text_count
    from riglm.application.evaluation.sequences import FOLDS, evaluate_sequences

    cuts, settings = parse_cuts(k), read_settings(config)
    makers = {kind: partial(make_predictor, kind, settings) for kind in strategies(predictor, settings)}
    found = _session_sets(data, names, side, limit)
    rows: list[dict[str, Any]] = []
    with open_embedder(settings, cache) as embedder:
        for one in found:
            name = one.dataset.name
            with progress(f"{name}: vectors", text_count(one.dataset)) as advance:
                prepared = prepare(one.dataset, embedder, advance)
            walked = len(one.sessions) * (FOLDS if protocol is ProtocolOption.KFOLD else 1)
            for kind, make in makers.items():
                with progress(f"{name}: {kind}", walked) as advance:
                    figures = evaluate_sequences(
                        one, prepared, make, protocol=protocol.value, cuts=cuts, on_session=advance
                    )
                told = {"dataset": name, "side": side, "predictor": kind, "protocol": protocol.value}
                rows.append({**told, **figures})
    show_rows(f"Next tool, {protocol.value}", rows, ("side", "protocol"), as_json=as_json)


@app.command()
def history(
    predictor: StrategiesOption = None,
    limit: SessionsOption = MAX_SESSIONS,
    days: DaysOption = None,
    since: SinceOption = None,
    db: DatabaseOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replay recorded sessions with the lists of each strategy, and compare what they would have cost.

    Each learns from all earlier sessions, regardless of --days and --since. price: price of the model requests relative
    to no proxy; price_of_search: relative to a host's tool search; requests: model requests of a session; hit_rate:
    share of calls whose tool was in the list; new_hit_rate: the same for tools that the session had not used before;
    mean_list: tools in the list; reduction: share of all tools that it did not show. Lists are made as the
    configuration asks. Contexts are not recorded as text, so what they add is not measured here, and sessions that were
    shown no list are learned from, not judged.
    """
    settings = settings_in_use(config)
    begin = beginning(days, since)
    kinds = strategies(predictor, settings)
    recorded, definitions = recorded_sessions(settings, db, limit)
    if not recorded and not as_json:
        typer.echo("nothing recorded yet: put riglm in front of a server, for example `riglm run -- COMMAND`")
        return
    walks = replayed(recorded, definitions, kinds, settings, begin) if recorded else {}
    rows = [{"predictor": kind, **walk.figures()} for kind, walk in walks.items()]
    show_rows("What would have been shown", rows, (), as_json=as_json)


@app.command()
def cost(
    names: NamesArgument = None,
    data: Annotated[Path | None, data_option("sessions.jsonl")] = None,
    side: SideOption = "dev",
    tools: Annotated[
        int | None,
        typer.Option("--tools", metavar="N", min=1, help="Maximum number of tools of a set: of the servers used most."),
    ] = None,
    learn: Annotated[
        int, typer.Option("--learn", metavar="N", min=0, help="Sessions of a set to learn from first.")
    ] = 40,
    judge: Annotated[int, typer.Option("--judge", metavar="N", min=1, help="Sessions of a set to price then.")] = 30,
    coding_agent: Annotated[
        bool, typer.Option("--coding-agent", help="Price prompts of 20,000 tokens and results of 2,000.")
    ] = False,
    limit: SessionsOption = MAX_SESSIONS,
    days: DaysOption = None,
    since: SinceOption = None,
    db: DatabaseOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Price sessions: through riglm, without a proxy, and with the tool search of a host.

    Without --data the sessions that riglm recorded, as they happened; in shadow mode as they would have been. With
    --data the sessions of data sets, in the order of the hashes of their ids. price: of all model requests, with prompt
    caching, relative to no proxy. requests: model requests of a session. first_list: tools in its first list. listed:
    share of the calls whose tool was in the list or was suggested, in percent, counting lists that hid something.
    """
    settings = settings_in_use(config) if data is None else read_settings(config)
    if data is None:
        rows = _recorded_costs(settings, db, limit, beginning(days, since), coding_agent)
    else:
        sizes = CODING_AGENT if coding_agent else DEFAULT_SIZES
        rows = _set_costs(settings, data, names, side, tools, learn, judge, sizes)
    if rows or as_json:
        shown = rows if as_json else [{**row, "price": f"{row['price']:.3f}"} for row in rows]
        show_rows("Price of model requests, relative to no proxy", shown, (), as_json=as_json)
    else:
        typer.echo("no session with a priced list is recorded yet: put riglm in front of a server, or give --data")


def _recorded_costs(
    settings: "Settings", db: Path | None, limit: int, begin: float, coding_agent: bool
) -> list[dict[str, Any]]:
    from riglm.application.evaluation.cost import cost_rows, recorded_figures
    from riglm.application.evaluation.record import read_figures

    store = store_of(settings, db)
    if store is None:
        return []
    with store:
        record = read_figures(store, settings.prices.prices(), limit=limit, since=begin)
    modes = dict.fromkeys(each.mode for each in record.costs)
    figures = {mode: recorded_figures(record.of(mode), as_coding_agent=coding_agent) for mode in sorted(modes)}
    return [{"mode": mode, **row} for mode, its in figures.items() for row in cost_rows(its)]


def _set_costs(
    settings: "Settings",
    data: Path,
    names: Sequence[str] | None,
    side: str,
    tools: int | None,
    learn: int,
    judge: int,
    sizes: SessionSizes,
) -> list[dict[str, Any]]:
    import asyncio

    from riglm.application.evaluation.cost import cost_rows, evaluate_cost, read_cost_set
    from riglm.application.evaluation.dataset import find_sets
    from riglm.composition.prediction import build_strategy

    rows, strategy = [], build_strategy(settings)
    for directory in find_sets(data, names or (), side=side, file="sessions.jsonl"):
        found = read_cost_set(directory, side=side, max_tools=tools)
        if len(found.sessions) <= learn:
            warn_skipped(found.name, f"{len(found.sessions)} sessions are too few to price any after --learn {learn}")
            continue
        with progress(found.name, min(learn + judge, len(found.sessions))) as advance:
            figures = asyncio.run(
                evaluate_cost(
                    found,
                    settings.filtering,
                    settings.prices.prices(),
                    strategy,
                    learn=learn,
                    judge=judge,
                    sizes=sizes,
                    on_session=advance,
                )
            )
        rows += [{"dataset": found.name, "tools": len(found.catalog.tools), **row} for row in cost_rows(figures)]
    if not rows:
        raise UnusableInputError(f"--learn {learn}: no set has more sessions — fix: a smaller --learn, or other sets")
    return rows


def _session_sets(data: Path, names: Sequence[str] | None, side: str, limit: int) -> "list[SessionSet]":
    """The sets that are asked for, but those with few sessions; it is an error if there is none."""
    from riglm.application.evaluation.dataset import DatasetError, find_sets
    from riglm.application.evaluation.sequences import MIN, read_sessions

    kept = []
    for directory in find_sets(data, names or (), side=side, file="sessions.jsonl"):
        one = read_sessions(directory, side=side, limit=limit)
        if len(one.sessions) < MIN:
            warn_skipped(one.dataset.name, f"{len(one.sessions)} sessions of two calls or more are too few")
        else:
            kept.append(one)
    if not kept:
        raise DatasetError(
            f"{data}: no set has {MIN} sessions of two calls or more to be measured — fix: more sessions or a "
            "larger --limit, or other sets"
        )
    return kept
