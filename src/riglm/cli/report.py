"""`riglm report`: what filtering would have hidden, missed and saved, and whether it is worth switching on."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from riglm.cli.measuring import settings_in_use
from riglm.cli.output import MAX_ROWS, ConfigOption, JsonOption, json_time, print_json, progress, write_page
from riglm.cli.replaying import (
    DatabaseOption,
    DaysOption,
    ProfileOption,
    SinceOption,
    StrategiesOption,
    beginning,
    definitions_of,
    replayed,
    store_of,
    strategies,
)
from riglm.domain.duration import to_utc_datetime
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.domain.retention import DAY_SECONDS
from riglm.domain.session_cost import MAX_SESSIONS

if TYPE_CHECKING:
    from riglm.application.evaluation.record import Observations
    from riglm.domain.schemas.settings import Settings
    from riglm.ports.analytics import SessionHistoryPort, TrainingSession

_Answer = TypeVar("_Answer")

_MAX_PREDICTIONS: Final = 2_400
"""Calls are replayed by all strategies together up to this number, unless the number of sessions is given."""

_QUARTER_SECONDS: Final = 900
"""Time zones differ by quarters of an hour."""


def report(
    days: DaysOption = None,
    since: SinceOption = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            min=1,
            max=MAX_ROWS,
            help="Maximum number of sessions, the latest; all of them are then replayed. Default: 1,000, of which the "
            "latest with some hundred calls are replayed.",
        ),
    ] = None,
    predictor: StrategiesOption = None,
    profile: ProfileOption = None,
    tools: Annotated[
        int,
        typer.Option("--tools", metavar="N", min=0, max=1_000, help="Maximum number of tools to name of each kind."),
    ] = 15,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="F", help="Write it as a page, too, which needs no other file.")
    ] = None,
    db: DatabaseOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Report what filtering would have saved and missed.

    Two sources are compared: what shadow mode recorded of the lists that it would have shown, and the
    recorded sessions replayed by each strategy, as `riglm evaluate history` does.
    """
    settings = settings_in_use(config)
    begin = beginning(days, since)
    found = _report(settings, strategies(predictor, settings), db, limit, begin, profile)
    if html is not None:
        _write_page(html, found)
    if as_json:
        print_json(found)
        return
    from riglm.cli.report_text import print_report

    print_report(found, tools)
    if html is not None:
        typer.echo(f"as a page: {html}")


def _report(
    settings: "Settings", kinds: Sequence[str], db: Path | None, limit: int | None, since: float, profile: str | None
) -> dict[str, Any]:
    from riglm.application.evaluation.record import Observations, read_figures
    from riglm.application.reporting.report import ReportInput, build_report

    most = limit or MAX_SESSIONS

    def read(store: "SessionHistoryPort") -> "tuple[Sequence[TrainingSession], Observations, int, Mapping[str, bytes]]":
        stored = store.count_sessions()[1]
        max_calls = None if limit else _MAX_PREDICTIONS // len(kinds)
        history = store.list_training_sessions(most, profile=profile, max_calls=max_calls)
        with progress("recorded", min(most, stored)) as advance:
            prices = settings.prices.prices()
            figures = read_figures(store, prices, limit=most, since=since, profile=profile, on_session=advance)
        return history, figures, stored, definitions_of(store)

    until = time.time()
    history, record, stored, definitions = _ask(read, settings, db, since) or ((), Observations(), 0, {})
    used = record.usage.listed_sessions + record.usage.unlisted_sessions
    judged = sum(session.started_at >= since and bool(session.tools_available) for session in history)
    findings = ReportInput(
        settings=settings,
        stored=stored,
        replays=replayed(history, definitions, kinds, settings, since) if history else {},
        skipped=0 if limit else max(0, used - judged),
        record=record,
        since=since,
        until=until,
    )
    found = build_report(findings, _day)
    return {**found, "since": json_time(found["since"]), "until": json_time(found["until"])}


def _ask(
    question: "Callable[[SessionHistoryPort], _Answer]", settings: "Settings", db: Path | None, since: float
) -> "_Answer | None":
    """Ask the store, or ClickHouse if the store may lack some of what happened since a time and ClickHouse has it.

    While ClickHouse is unavailable the store answers. None if nothing was ever recorded.
    """
    days = settings.retention.usage_days
    with store_of(settings, db) or nullcontext() as store:
        if db is None and settings.clickhouse.url is not None and days and since < time.time() - days * DAY_SECONDS:
            from riglm.composition.container import Container

            try:
                with Container(settings).create_clickhouse() as archive:
                    if store is None or archive.get_earliest_call_time() < store.get_earliest_call_time():
                        return question(archive)
            except AnalyticsUnavailableError as error:
                typer.echo(f"note: {error}; this report is of the store alone", err=True)
        return None if store is None else question(store)


def _day(at: float) -> str:
    """The day of a time, where the user is."""
    return _day_of_quarter(int(at // _QUARTER_SECONDS))


@cache
def _day_of_quarter(quarter: int) -> str:
    return to_utc_datetime(quarter * _QUARTER_SECONDS).astimezone().strftime("%Y-%m-%d")


def _write_page(file: Path, found: dict[str, Any]) -> None:
    from riglm.adapters.control.dashboard.files import page_files
    from riglm.adapters.reporting.page import page

    vendor = "vendor/echarts/"
    files = page_files()
    licences = [
        files[path].body.decode("utf-8")
        for path in sorted(files)
        if path.startswith(vendor) and not path.endswith(".js")
    ]
    write_page(file, page(found, files[f"{vendor}echarts.common.min.js"].body.decode("utf-8"), licences))
