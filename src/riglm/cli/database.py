"""`riglm db` and `riglm audit`: the schema of the store, what waits for it, and the audit log."""

import sys
import time
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from riglm.cli import forgetting
from riglm.cli.output import ConfigOption, JsonOption, json_time, print_json, progress
from riglm.cli.store_access import alone, configuration_of, opened, paced, settings_of
from riglm.domain.errors import ConfigurationError, RiglmError, UnusableInputError
from riglm.ports.analytics import RecordKind

if TYPE_CHECKING:
    from riglm.adapters.analytics.schema import SchemaStatus
    from riglm.domain.doctor import SpoolStatus
    from riglm.domain.schemas.settings import Settings


_CLOCK_AHEAD = (
    "clock: it is {days:.0f} days ahead of the records of earlier days and of the last purge; age is measured at the "
    "later of the two — fix: set the clock, or give --older-than if it is right"
)


def purge(
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="SPAN", help="Such as 30d, 12h or 2w; by default the `retention` of each kind."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count only.")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove what is too old, in small steps, while riglm goes on. Running processes do so by themselves every hour."""
    from riglm.domain.retention import DAY_SECONDS, Expiry, RemovedCounts

    settings = settings_of(config)
    limit = _parse_age(older_than)
    with opened(settings) as store:
        now = time.time()
        if limit is None:
            reliable = store.get_reliable_time(now, now)
            if reliable != now:
                typer.echo(_CLOCK_AHEAD.format(days=(now - reliable) / DAY_SECONDS), err=True)
            expiry = settings.retention.expiry(reliable)
        else:
            expiry = Expiry.of_all(now - limit, now)
        found = store.count_expired(expiry)
        removed = RemovedCounts()
        if not dry_run:
            with alone(store), progress("purging", found.total) as advance:
                for step in paced(store.purge(expiry)):
                    removed += step
                    advance(step.total)
    if as_json:
        limits = {name: json_time(limit) for name, limit in asdict(expiry).items() if name != "now"}
        print_json({"dry_run": dry_run, "before": limits, "removed": asdict(found if dry_run else removed)})
    else:
        typer.echo(f"would be removed: {found}" if dry_run else f"removed: {removed}")


def vacuum(
    whole: Annotated[
        bool, typer.Option("--whole", help="Rewrite the store; what is recorded meanwhile waits until that is done.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give back the space that nothing is stored in."""
    with opened(settings_of(config)) as store:
        before = store.size_bytes()
        with alone(store):
            for done in paced(store.compact(whole=whole)):
                if not as_json:
                    typer.echo(done, err=True)
        after = store.size_bytes()
    told: dict[str, Any] = {"bytes_before": before, "bytes_after": after}
    if as_json:
        print_json(told)
    else:
        typer.echo(f"{before / 1e6:.1f} MB before, {after / 1e6:.1f} MB now")


def _parse_age(older_than: str | None) -> float | None:
    from riglm.domain.duration import parsed_duration

    try:
        return None if older_than is None else parsed_duration(older_than)
    except ValueError as error:
        raise ConfigurationError(f"--older-than: {error}") from error


class ExportFormat(StrEnum):
    """How records are written."""

    JSONL = "jsonl"
    CSV = "csv"


def export(
    out: Annotated[str, typer.Option("--out", metavar="DIR|-", help="A new directory, or - for stdout.")],
    format_: Annotated[ExportFormat, typer.Option("--format", help="How records are written.")] = ExportFormat.JSONL,
    since: Annotated[
        str | None, typer.Option("--since", metavar="DATE|SPAN", help="From then on: 2026-01-31, or 30d for the last.")
    ] = None,
    table: Annotated[list[RecordKind] | None, typer.Option("--table", help="Only these; may be repeated.")] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hand out what is stored, ids hashed as they are, a part at a time. riglm may go on meanwhile."""
    if not out.strip():
        raise ConfigurationError("--out: no directory is named — fix: name a new one, or give - for stdout")
    from riglm.adapters.export import export_files, export_stream

    settings = settings_of(config)
    kinds = list(dict.fromkeys(table or RecordKind))
    start = _parse_since(since)
    with (
        opened(settings) as store,
        progress("exporting", sum(store.count_rows(kind, start) for kind in kinds)) as advance,
    ):
        if out == "-":
            counts = export_stream(store, sys.stdout.buffer, format_.value, kinds, since=start, progress=advance)
            for kind, count in counts.items():
                typer.echo(f"{count:>10} {kind.value}", err=True)
            return
        about = _describe_export(settings.storage.kind, since and start)
        tables = export_files(store, Path(out), format_.value, kinds, since=start, about=about, progress=advance)
    if as_json:
        print_json({"directory": out, "tables": {kind.value: asdict(each) for kind, each in tables.items()}})
        return
    for kind, each in tables.items():
        typer.echo(f"{each.rows:>10} {kind.value:<14} {each.bytes / 1e6:>9.1f} MB  {Path(out) / each.file}")


def _parse_since(text: str | None) -> float:
    from riglm.domain.duration import parsed_moment

    if text is None:
        return 0.0
    try:
        return parsed_moment(text, time.time())
    except ValueError as error:
        raise ConfigurationError(f"--since: {error}") from error


def _describe_export(store: str, since: float | str | None) -> dict[str, Any]:
    from importlib.metadata import version

    from riglm.adapters.analytics.tables import SCHEMA_REVISION

    return {
        "riglm": version("riglm"),
        "schema": SCHEMA_REVISION,
        "store": store,
        "exported_at": json_time(time.time()),
        "since": json_time(float(since)) if since else None,
    }


app = typer.Typer(help="Maintain the store.", rich_markup_mode=None, no_args_is_help=True)
app.command()(purge)
app.command()(vacuum)
app.command()(export)
app.command()(forgetting.forget)


@app.command()
def upgrade(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Bring the store to the newest schema, or make it.

    `run` and `serve` do so by themselves.
    """
    from riglm.adapters.analytics import schema
    from riglm.adapters.configuration.locations import store_url

    _print_status(schema.upgrade(store_url(_load_settings(config))), None, as_json)


@app.command()
def status(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show where the store is, which schema it has, and what waits in spools. Nothing is made or changed."""
    from riglm.adapters.analytics import schema
    from riglm.adapters.spool.sqlite_spool import survey
    from riglm.container import Container

    settings = _load_settings(config)
    container = Container(settings=settings)
    _print_status(schema.status(container.store_url()), survey(*container.spool_paths()), as_json)


def _load_settings(config: Path | None) -> "Settings":
    from riglm.adapters.configuration.loading import Options, load
    from riglm.adapters.configuration.locations import store_path
    from riglm.cli.store_access import is_there

    settings = load(Options(config=config, with_servers=False)).settings
    if settings.storage.kind == "memory":
        raise ConfigurationError(
            "storage.kind: the store is in memory and has no schema — fix: use sqlite or postgresql"
        )
    if settings.storage.kind == "sqlite":
        is_there(store_path(settings))
    return settings


def _print_status(found: "SchemaStatus", spools: "list[SpoolStatus] | None", as_json: bool) -> None:
    if as_json:
        told: dict[str, Any] = {
            "url": found.url,
            "current": found.current,
            "head": found.head,
            "pending": list(found.pending),
        }
        if spools is not None:
            told["spools"] = [asdict(spool) | {"path": str(spool.path)} for spool in spools]
        print_json(told)
        return
    typer.echo(f"store    {found.url}")
    typer.echo(f"schema   {found.current or 'none yet'}")
    typer.echo(f"pending  {', '.join(found.pending) or 'nothing'}")
    for spool in spools or []:
        whose = "of a process that runs" if spool.is_held else "left behind: the next start stores or sends it"
        damage = f", {spool.damaged} damaged" if spool.damaged else ""
        newer = ", written by a newer riglm" if spool.is_newer else ""
        typer.echo(f"spool    {spool.path}: {spool.records} records{damage}{newer}, {whose}")


audit_app = typer.Typer(name="audit", help="Check the audit log.", no_args_is_help=True, rich_markup_mode=None)
_MAX_FAULTS = 20


@audit_app.callback()
def _audit() -> None:
    """The audit log."""


@audit_app.command()
def verify(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="By default the `audit.file` of the configuration.")
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="HASH", help="Hash of the line that the first one must follow.")
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check that no line was changed, removed from between others, or added; print the hash of the last one."""
    from riglm.domain import audit

    place = file or _get_audit_file(config)
    try:
        with place.open(encoding="utf-8", errors="replace") as lines:
            found = audit.verify((line.rstrip("\n") for line in lines), after)
    except OSError as error:
        raise UnusableInputError(f"{place} cannot be read ({error.strerror}) — fix: name the audit log") from error
    if as_json:
        faults = [{"line": line, "fault": fault} for line, fault in found.faults]
        print_json({"file": str(place), "lines": found.lines, "last_hash": found.last, "faults": faults})
    else:
        for line, fault in found.faults[:_MAX_FAULTS]:
            typer.echo(f"line {line}: {fault}")
        typer.echo(f"{found.lines} lines, the last one with the hash {found.last}")
    if not found.is_intact:
        count = len(found.faults) - len(found.cut)
        raise RiglmError(f"{place} was damaged or tampered with: {count} lines do not fit")


def _get_audit_file(config: Path | None) -> Path:
    place = configuration_of(config).settings.audit.file
    if not place or place == "-":
        raise ConfigurationError("audit.file names no file — fix: set it, or name the FILE to check")
    return Path(place).expanduser()
