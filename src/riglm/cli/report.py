"""`riglm report` and `evaluate`: what filtering would have hidden, missed and saved, by strategy."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer
from rich.console import RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from riglm.adapters.control.dashboard import ASSETS
from riglm.adapters.reports import page
from riglm.application.prediction.prediction_settings import Strategy
from riglm.application.reports.figures import Observations, read_figures
from riglm.application.reports.report import build_report, cost_rows, format_range, recorded_figures
from riglm.application.reports.session_replay import ReplayedHistory, replay_history
from riglm.cli import output
from riglm.cli.store_access import DatabaseOption, find_store, settings_in_use
from riglm.container import Container
from riglm.domain.duration import format_count, to_utc_datetime
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.domain.naming import prefixed
from riglm.domain.retention import DAY_SECONDS
from riglm.domain.schemas.settings import Settings
from riglm.domain.session_cost import MAX_SESSIONS
from riglm.ports.analytics import SessionHistoryPort, ToolPinsPort, TrainingSession
from riglm.ports.predictor import PREDICTORS, PredictorPort

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
        int,
        typer.Option(
            "--limit", metavar="N", min=1, max=output.MAX_ROWS, help="Maximum number of sessions, the latest."
        ),
    ] = MAX_SESSIONS,
    days: DaysOption = None,
    since: SinceOption = None,
    coding_agent: Annotated[
        bool, typer.Option("--coding-agent", help="Price prompts of 20,000 tokens and results of 2,000.")
    ] = False,
    db: DatabaseOption = None,
    config: output.ConfigOption = None,
    as_json: output.JsonOption = False,
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
        output.print_json(found)
    elif not any(found.values()):
        typer.echo(output.NOTHING_RECORDED)
    else:
        _print_rows("Recorded sessions: price of model requests, relative to no proxy", found["recorded"])
        _print_rows("What each strategy would have shown", found["strategies"])


def _print_rows(title: str, rows: Sequence[dict[str, Any]]) -> None:
    if rows:
        cells = ((_format_cell(column, value) for column, value in row.items()) for row in rows)
        output.print_table(title, tuple(rows[0]), map(tuple, cells))


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
    return 0.0 if days is None else time.time() - days * DAY_SECONDS


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
        with output.progress(kind, len(history)) as advance:
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


_Answer = TypeVar("_Answer")

_MAX_PREDICTIONS: Final = 2_400
"""Calls are replayed by all strategies together up to this number, unless the number of sessions is given."""

_BAR_COLUMNS: Final = 24
_MAX_DAYS: Final = 31
_MARKS: Final = {True: ("yes", "green"), False: ("no", "red"), None: ("?", "yellow")}
_RECORDED: Final = {
    "shadow": "What shadow mode recorded: estimates, of the lists that filtering would have shown",
    "enforce": "What was recorded of lists that were shown",
}


def report(
    days: DaysOption = None,
    since: SinceOption = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            min=1,
            max=output.MAX_ROWS,
            help="Maximum number of sessions, the latest; all of them are then replayed. Default: 1,000, of which the "
            "latest with some hundred calls are replayed.",
        ),
    ] = None,
    predictor: StrategiesOption = None,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="NAME", help="Only the sessions of this profile.")
    ] = None,
    tools: Annotated[
        int,
        typer.Option("--tools", metavar="N", min=0, max=1_000, help="Maximum number of tools to name of each kind."),
    ] = 15,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="F", help="Write it as a page, too, which needs no other file.")
    ] = None,
    db: DatabaseOption = None,
    config: output.ConfigOption = None,
    as_json: output.JsonOption = False,
) -> None:
    """Report what filtering would have saved and missed.

    Two sources are compared: what shadow mode recorded of the lists that it would have shown, and the
    recorded sessions replayed by each strategy, as `riglm evaluate` does.
    """
    settings = settings_in_use(config)
    begin = parse_beginning(days, since)
    found = _build_report(settings, parse_strategies(predictor, settings), db, limit, begin, profile)
    if html is not None:
        _write_html(html, found)
    if as_json:
        output.print_json(found)
        return
    console = output.create_console()
    for part in _render_report(found, tools):
        console.print(part)
    if html is not None:
        console.print(f"as a page: {html}")


def _build_report(
    settings: Settings, kinds: Sequence[str], db: Path | None, limit: int | None, since: float, profile: str | None
) -> dict[str, Any]:
    most = limit or MAX_SESSIONS

    def read(store: SessionHistoryPort) -> tuple[Sequence[TrainingSession], Observations, int, Mapping[str, bytes]]:
        stored = store.count_sessions()[1]
        max_calls = None if limit else _MAX_PREDICTIONS // len(kinds)
        history = store.list_training_sessions(most, profile=profile, max_calls=max_calls)
        with output.progress("recorded", min(most, stored)) as advance:
            prices = settings.prices.prices()
            figures = read_figures(store, prices, limit=most, since=since, profile=profile, on_session=advance)
        return history, figures, stored, definitions_of(store)

    until = time.time()
    history, record, stored, definitions = _ask_store(read, settings, db, since) or ((), Observations(), 0, {})
    judged = sum(session.started_at >= since and bool(session.tools_available) for session in history)
    found = build_report(
        settings,
        record,
        replay_by_strategy(history, definitions, kinds, settings, since) if history else {},
        _format_day,
        stored=stored,
        skipped=0 if limit else max(0, record.usage.used_sessions - judged),
        since=since,
        until=until,
    )
    return {**found, "since": output.json_time(found["since"]), "until": output.json_time(found["until"])}


def _ask_store(
    question: Callable[[SessionHistoryPort], _Answer], settings: Settings, db: Path | None, since: float
) -> _Answer | None:
    """Ask the store, or ClickHouse if the store may lack some of what happened since a time and ClickHouse has it.

    While ClickHouse is unavailable the store answers. None if nothing was ever recorded.
    """
    days = settings.retention.usage_days
    with find_store(settings, db) or nullcontext() as store:
        if db is None and settings.clickhouse.url is not None and days and since < time.time() - days * DAY_SECONDS:
            try:
                with Container(settings=settings).clickhouse() as archive:
                    if store is None or archive.get_earliest_call_time() < store.get_earliest_call_time():
                        return question(archive)
            except AnalyticsUnavailableError as error:
                typer.echo(f"note: {error}; this report is of the store alone", err=True)
        return None if store is None else question(store)


def _format_day(at: float) -> str:
    """The day of a time, where the user is."""
    return to_utc_datetime(at).astimezone().strftime("%Y-%m-%d")


def _write_html(file: Path, found: dict[str, Any]) -> None:
    vendor = ASSETS / "vendor" / "echarts"
    others = sorted(each for each in vendor.rglob("*") if each.is_file() and each.suffix != ".js")
    licences = [each.read_text("utf-8") for each in others]
    output.write_file("--html", file, page(found, (vendor / "echarts.common.min.js").read_text("utf-8"), licences))


def _render_report(found: dict[str, Any], most_tools: int) -> Sequence[RenderableType]:
    """Return the parts of the report, with at most `most_tools` tools of each kind."""
    code = found["verdict"]["code"]
    parts = _render_verdict(found)
    if found["bill"]["clients"] or code != "empty":
        parts += _render_bill(found["bill"])
    if code == "empty":
        return parts
    for mode, title in _RECORDED.items():
        if found["record"][mode] is not None:
            parts += (_render_recorded(found["record"][mode]["facts"], title), "")
    if found["days"]:
        parts += (_render_days(found["days"], found["replayed_with"]), "")
    return [*parts, *_render_strategies(found), *_render_tools(found["tools"], most_tools), found["explanation"]]


def _render_verdict(found: dict[str, Any]) -> list[RenderableType]:
    rules, verdict = found["rules"], found["verdict"]
    lines = [Text(verdict["text"], style="bold")]
    lines.append(Text(f"{_format_counts(found, ', ')}, {found['failed_calls']:,} failed"))
    lines += map(Text, found["headline"])
    if not verdict["reasons"]:
        return [*lines, ""]
    reasons = Table.grid(padding=(0, 1, 0, 2))
    for reason in verdict["reasons"]:
        mark, color = _MARKS[reason["met"]]
        reasons.add_row(Text(mark, style=color), output.printable(reason["text"]))
    about = f"filtering.mode {rules['mode']}, strategy {rules['strategy']}, {rules['min_tools']} to "
    about += f"{rules['max_tools']} tools"
    about += "" if rules["coverage"] is None else f" for {rules['coverage']:.0%} of the calls"
    return [*lines, reasons, Text(output.printable(about), style="dim"), ""]


def _render_bill(bill: dict[str, Any]) -> list[RenderableType]:
    """Return what sessions in transcripts were billed, and what the price model computes for as many requests."""
    sizes = ("prompt_tokens", "call_tokens", "output_tokens")
    columns = ("client", "sessions", "requests", "billed", "modeled", "by default", "prompt", "result", "output")
    rows = [
        (
            one["client"],
            one["sessions"],
            one["requests_per_session"],
            *(round(one[price]) for price in ("billed", "modeled", "modeled_by_default")),
            *(round(one["sizes"][size]) for size in sizes),
            f"{one['sizes']['cached_share']:.0%}",
        )
        for one in bill["clients"]
    ]
    title = "Your own bill next to the price model, in tokens of uncached input, and the sizes fitted to it"
    return [*([output.create_table(title, (*columns, "cached"), rows)] if rows else []), bill["text"], ""]


def _render_recorded(facts: Mapping[str, str], title: str) -> Table:
    table = _create_plain_table(title)
    table.show_header = False
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, text in facts.items():
        table.add_row(name, output.printable(text))
    return table


def _render_days(days: Sequence[dict[str, Any]], strategy: str) -> Table:
    """Return the plot: each day's hit rate, list size and net tokens."""
    table = _create_plain_table(f"Day by day, replayed with {strategy}; tokens as recorded")
    for head in ("day", "calls", "hit rate", "%", "95 of 100", "tools in the list", "", "tokens net"):
        table.add_column(head, justify="right" if head in {"calls", "%", "", "tokens net"} else "left", no_wrap=True)
    shown = days[-_MAX_DAYS:]
    longest = max((day["mean_list"] or 0 for day in shown), default=0) or 1
    for day in shown:
        recorded = day["recorded"]
        table.add_row(
            day["day"],
            f"{day['calls']:,}",
            ProgressBar(100, day["hit_rate"] or 0, width=_BAR_COLUMNS),
            _or_dash(day["hit_rate"], ".1f"),
            format_range(day["hit_rate_interval"]),
            ProgressBar(longest, day["mean_list"] or 0, width=_BAR_COLUMNS // 2),
            _or_dash(day["mean_list"], ",.1f"),
            f"{recorded['tokens_net']:+,}" if recorded["lists"] else "-",
        )
    return table


def _render_strategies(found: dict[str, Any]) -> list[RenderableType]:
    if not found["strategies"]:
        return []
    columns = ("predictor", "price", "requests", "calls", "hit_rate", "range", "new_hit_rate", "range", "mean_list")
    rows = [
        (
            f"{one['predictor']} *" if one["predictor"] == found["rules"]["strategy"] else one["predictor"],
            _or_dash(one["price"], ".3f"),
            _or_dash(one["requests"]),
            one["calls"],
            _or_dash(one["hit_rate"]),
            format_range(one["hit_rate_interval"]),
            _or_dash(one["new_hit_rate"]),
            format_range(one["new_hit_rate_interval"]),
            _or_dash(one["mean_list"]),
        )
        for one in found["strategies"]
    ]
    replayed = found["replayed"]
    of = _format_counts(replayed, " with ")
    of += f", the latest; {replayed['skipped']:,} before them were skipped" if replayed["skipped"] else ""
    return [output.create_table(f"Replayed by strategy (* configured): {of}", columns, rows)]


def _render_tools(tools: dict[str, Any], most: int) -> list[RenderableType]:
    missed, unused = tools["missed"], tools["never_used"]
    parts: list[RenderableType] = []
    if missed and most:
        columns = ("tool", "server", "missed", "calls", "recorded: missed", "calls", "searched", "by name")
        keys = ("missed", "calls", "recorded_missed", "recorded_calls", "searched", "named")
        rows = [(row["tool"], row["server"], *(_or_dash(row[key]) for key in keys)) for row in missed[:most]]
        parts.append(output.create_table("Missed tools: a search finds them, one call more", columns, rows))
        if len(missed) > most:
            parts.append(f"and {len(missed) - most:,} more")
    if unused:
        names = ", ".join(map(output.printable, unused[:most]))
        more = f" and {len(unused) - most:,} more" if len(unused) > most else ""
        parts.append(f"Never used, of the tools that were shown: {len(unused):,}: {names}{more}\n")
    return parts


def _create_plain_table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))


def _format_counts(counts: dict[str, Any], between: str) -> str:
    return f"{format_count(counts['sessions'], 'session')}{between}{format_count(counts['calls'], 'call')}"


def _or_dash(number: float | None, form: str = "", unit: str = "") -> Any:
    """Return a number as a table shows it, in a form if one is given."""
    if number is None:
        return "-"
    return f"{number:{form}}{unit}" if form else number
