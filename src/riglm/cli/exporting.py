"""`riglm db export`: all that is stored, for other programs to read."""

import sys
import time
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from riglm.cli.options import ConfigOption, JsonOption
from riglm.cli.output import json_time, print_json
from riglm.cli.progress import progress
from riglm.cli.store_access import opened, settings_of
from riglm.domain.errors import ConfigurationError
from riglm.ports.maintenance import Kind


class ExportFormat(StrEnum):
    """How records are written."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


def export(
    out: Annotated[str, typer.Option("--out", metavar="DIR|-", help="A new directory, or - for stdout.")],
    format_: Annotated[ExportFormat, typer.Option("--format", help="How records are written.")] = ExportFormat.JSONL,
    since: Annotated[
        str | None, typer.Option("--since", metavar="DATE|SPAN", help="From then on: 2026-01-31, or 30d for the last.")
    ] = None,
    table: Annotated[list[Kind] | None, typer.Option("--table", help="Only these; may be repeated.")] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hand out what is stored, ids hashed as they are, a part at a time. riglm may go on meanwhile."""
    if not out.strip():
        raise ConfigurationError("--out: no directory is named — fix: name a new one, or give - for stdout")
    settings = settings_of(config)
    kinds = list(dict.fromkeys(table or Kind))
    start = _since(since)
    with opened(settings) as store:
        total = sum(store.count_rows(kind, start) for kind in kinds)
        about = _about(settings.storage.kind, since and start)
        with progress("exporting", total) as advance:
            if out == "-":
                _to_stdout(store, format_, kinds, start, lambda _, count: advance(count))
                return
            from riglm.adapters.export.files import export_files

            tables = export_files(
                store,
                Path(out),
                format_.value,
                kinds,
                since=start,
                about=about,
                progress=lambda _, count: advance(count),
            )
    if as_json:
        print_json({"directory": out, "tables": {kind.value: asdict(each) for kind, each in tables.items()}})
        return
    for kind, each in tables.items():
        typer.echo(f"{each.rows:>10} {kind.value:<14} {each.bytes / 1e6:>9.1f} MB  {Path(out) / each.file}")


def _to_stdout(store: Any, format_: ExportFormat, kinds: list[Kind], since: float, tell: Any) -> None:
    from riglm.adapters.export.files import export_stream

    counts = export_stream(store, sys.stdout.buffer, format_.value, kinds, since=since, progress=tell)
    for kind, count in counts.items():
        typer.echo(f"{count:>10} {kind.value}", err=True)


def _since(text: str | None) -> float:
    from riglm.domain.duration import parsed_moment

    if text is None:
        return 0.0
    try:
        return parsed_moment(text, time.time())
    except ValueError as error:
        raise ConfigurationError(f"--since: {error}") from error


def _about(store: str, since: float | str | None) -> dict[str, Any]:
    from importlib.metadata import version

    from riglm.adapters.analytics.tables import SCHEMA_REVISION

    return {
        "riglm": version("riglm"),
        "schema": SCHEMA_REVISION,
        "store": store,
        "exported_at": json_time(time.time()),
        "since": json_time(float(since)) if since else None,
    }
