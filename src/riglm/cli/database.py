"""`riglm db` and `riglm audit`: the schema of the store, what is removed from it, and the audit log."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final
from uuid import UUID

import typer

from riglm.adapters.analytics import copying, tables
from riglm.adapters.analytics.engine import database_file, safe_url
from riglm.adapters.analytics.tables import SCHEMA_REVISION, SchemaStatus
from riglm.adapters.configuration.loading import Options, load
from riglm.adapters.configuration.locations import store_path, store_url
from riglm.adapters.export import Exporter, FileFormat
from riglm.adapters.spool.sqlite_spool import survey
from riglm.application.session_sharing.signing import drop_sessions
from riglm.application.tracking.maintenance import at_a_pace
from riglm.cli.output import ConfigOption, JsonOption, json_time, print_result, printable, progress
from riglm.cli.store_access import alone, configuration_of, is_hash, is_there, require_store, settings_of
from riglm.cli.usage import find_session
from riglm.container import Container
from riglm.domain import audit
from riglm.domain.doctor import SpoolStatus
from riglm.domain.duration import format_count, parsed_duration, parsed_moment
from riglm.domain.errors import ConfigurationError, RiglmError, StateUnavailableError, UnusableInputError
from riglm.domain.retention import DAY_SECONDS, ErasureRequest, ErasureScope, Expiry, RemovedCounts
from riglm.domain.schemas.settings import Settings
from riglm.domain.session import parsed_uuid
from riglm.ports.analytics import AnalyticsPort, RecordKind

app = typer.Typer(help="Maintain the store.", rich_markup_mode=None, no_args_is_help=True)
audit_app = typer.Typer(name="audit", help="Check the audit log.", no_args_is_help=True, rich_markup_mode=None)

_ARCHIVE_SECONDS: Final = 600.0
"""Maximum time for one statement that erases in ClickHouse."""

_MAX_FAULTS: Final = 20
_CLOCK_AHEAD: Final = (
    "clock: it is {days:.0f} days ahead of the records of earlier days and of the last purge; age is measured at the "
    "later of the two — fix: set the clock, or give --older-than if it is right"
)


_SAME_KEY: Final = "the other database needs the same key — fix: copy riglm.key next to it, or set privacy.key"


@app.command()
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
    """Remove what is too old, in small steps, while riglm goes on.

    Running processes do so by themselves every hour.
    """
    settings = settings_of(config)
    limit = None if older_than is None else _parse("--older-than", older_than, parsed_duration)
    with require_store(settings).analytics() as store:
        now = time.time()
        if limit is None:
            reliable = store.get_reliable_time(now, now)
            if reliable != now:
                typer.echo(_CLOCK_AHEAD.format(days=(now - reliable) / DAY_SECONDS), err=True)
            expiry = settings.retention.expiry(reliable)
        else:
            expiry = Expiry.of_all(now - limit, now)
        removed = store.count_expired(expiry)
        if not dry_run:
            with alone(store):
                removed = _remove(store.purge(expiry), "purging", removed.total)
    limits = {name: json_time(limit) for name, limit in asdict(expiry).items() if name != "now"}
    fields = {"dry_run": dry_run, "before": limits, "removed": asdict(removed)}
    print_result(fields, f"{'would be removed' if dry_run else 'removed'}: {removed}", as_json=as_json)


def _remove(steps: Iterator[RemovedCounts], what: str, total: int) -> RemovedCounts:
    """Take the steps, with pauses in which running processes have the store; return what they removed."""
    removed = RemovedCounts()
    with progress(what, total) as advance:
        for step in at_a_pace(steps, time.sleep):
            removed += step
            advance(step.total)
    return removed


@app.command()
def vacuum(
    whole: Annotated[
        bool, typer.Option("--whole", help="Rewrite the store; what is recorded meanwhile waits until that is done.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give back the space that nothing is stored in."""
    with require_store(settings_of(config)).analytics() as store:
        before = store.size_bytes()
        with alone(store):
            for done in at_a_pace(store.compact(whole=whole), time.sleep):
                if not as_json:
                    typer.echo(done, err=True)
        after = store.size_bytes()
    sizes = {"bytes_before": before, "bytes_after": after}
    print_result(sizes, f"{before / 1e6:.1f} MB before, {after / 1e6:.1f} MB now", as_json=as_json)


@app.command()
def export(
    out: Annotated[str, typer.Option("--out", metavar="DIR|-", help="A new directory, or - for stdout.")],
    format_: Annotated[FileFormat, typer.Option("--format", help="How records are written.")] = "jsonl",
    since: Annotated[
        str | None, typer.Option("--since", metavar="DATE|SPAN", help="From then on: 2026-01-31, or 30d for the last.")
    ] = None,
    table: Annotated[
        list[RecordKind] | None,
        typer.Option("--table", metavar="KIND", help=f"Only this: {', '.join(RecordKind)}; may be repeated."),
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Export the store as JSON Lines or CSV.

    Ids stay hashed. It is safe while riglm is running.
    """
    if not out.strip():
        raise ConfigurationError("--out: no directory is named — fix: name a new one, or give - for stdout")
    settings = settings_of(config)
    kinds = list(dict.fromkeys(table or RecordKind))
    start = 0.0 if since is None else _parse("--since", since, lambda text: parsed_moment(text, time.time()))
    with (
        require_store(settings).analytics() as store,
        progress("exporting", sum(store.count_rows(kind, start) for kind in kinds)) as advance,
    ):
        exporter = Exporter(store, format_, start, advance)
        if out == "-":
            for kind, count in exporter.write_stream(sys.stdout.buffer, kinds).items():
                typer.echo(f"{count:>10} {kind.value}", err=True)
            return
        about = {
            "riglm": version("riglm"),
            "schema": SCHEMA_REVISION,
            "store": settings.storage.kind,
            "exported_at": json_time(time.time()),
            "since": json_time(start) if since else None,
        }
        tables = exporter.write_files(Path(out), kinds, about)
    lines = [
        f"{each['rows']:>10} {kind:<14} {each['bytes'] / 1e6:>9.1f} MB  {Path(out) / each['file']}"
        for kind, each in tables.items()
    ]
    print_result({"directory": out, "tables": tables}, "\n".join(lines), as_json=as_json)


def _parse(option: str, text: str, parser: Callable[[str], float]) -> float:
    try:
        return parser(text)
    except ValueError as error:
        raise ConfigurationError(f"{option}: {error}") from error


@app.command()
def forget(
    client: Annotated[
        str | None,
        typer.Option("--client", metavar="NAME|HASH", help="A client by the name it gave itself, or by its hashed id."),
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="One session; the end of its id does.")
    ] = None,
    principal: Annotated[
        str | None,
        typer.Option(
            "--principal",
            metavar="NAME|HASH",
            help='Principal to erase, by name or hash; "" for all unauthenticated callers.',
        ),
    ] = None,
    unseen: Annotated[
        bool, typer.Option("--unseen", help="Also when nothing is stored: what still waits in spools is dropped then.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Erase a client, a session or a principal.

    This includes what running processes and spools still hold of it.
    """
    if sum(given is not None for given in (client, session, principal)) != 1:
        raise ConfigurationError("whom to forget is not clear — fix: give one of --client, --session and --principal")
    if "" in {client, session}:
        raise ConfigurationError(
            "an empty --client or --session is no name — fix: give a name or an id as `riglm sessions` shows it"
        )
    settings = settings_of(config)
    container = Container(settings=settings)
    removed, pieces, archived, problem, waiting = RemovedCounts(), 0, 0, None, 0
    with require_store(settings).analytics() as store:
        whom = _find_subject(container, store, client, session, principal)
        subject = f"the {whom.whose.value} {printable(client or whom.key) or 'without a name'}"
        known = store.count_erasable(whom)
        if whom.whose is ErasureScope.PRINCIPAL:  # only principals have knowledge
            with container.knowledge() as knowledge:
                counts = knowledge.counts(whom.key, "")
            pieces = counts.thoughts + counts.entities + counts.observations
        is_known = bool(known.total or pieces or unseen)
        if is_known:
            if not yes:
                reach = ", for all principals," if client is not None else ""
                question = f"Erase {known}{_format_pieces(pieces)} of {subject}{reach} permanently?"
                typer.confirm(question, abort=True, err=True)
            with alone(store):
                removed = _remove(store.erase(whom), "forgetting", known.total)
                store.refresh_cooccurrences(time.time())  # what they used together counts no more
                for _ in at_a_pace(store.compact(), time.sleep):
                    pass
            if pieces:
                with container.knowledge() as knowledge:
                    pieces = knowledge.forget_owner(whom.key)
        sessions = _list_erased(store)
    dropped = _drop_shared(container, settings, sessions)
    if is_known:
        archived, problem = _erase_archived(container, whom, sessions) if settings.clickhouse.url else (0, None)
        waiting = sum(spool.records for spool in survey(*container.spool_paths()))
    elif not dropped:
        raise RiglmError(
            f"nothing is stored of {subject} — fix: look into `riglm sessions`, or add --unseen to drop what "
            "is still to be stored of it" + (" and to erase in ClickHouse" if settings.clickhouse.url else "")
        )
    fields = {
        "whose": whom.whose.value,
        "key": whom.key,
        "removed": asdict(removed) | {"knowledge": pieces},
        "removed_from_redis": dropped,
        "removed_from_clickhouse": archived,
        "spooled": waiting,
    }
    lines = [
        f"removed: {removed}{_format_pieces(pieces)}",
        f"removed from Redis: {format_count(dropped, 'session')}" if dropped else "",
        f"removed from ClickHouse: {format_count(archived, 'session')}" if archived else "",
        f"{waiting} records wait in spools; those of {subject} are dropped instead of stored" if waiting else "",
    ]
    print_result(fields, "\n".join(filter(None, lines)), as_json=as_json)
    if problem is not None:
        raise RiglmError(f"not erased in ClickHouse: {problem}, and run this again with --unseen") from problem


def _format_pieces(pieces: int) -> str:
    return f", {pieces} pieces of knowledge" if pieces else ""


def _find_subject(
    container: Container, store: AnalyticsPort, client: str | None, session: str | None, principal: str | None
) -> ErasureRequest:
    request = partial(ErasureRequest, at=time.time())
    if session is not None:
        return request(whose=ErasureScope.SESSION, key=_find_session_id(store, session))
    if not client and not principal:
        return request(whose=ErasureScope.PRINCIPAL, key="")
    whose, given = (ErasureScope.CLIENT, client) if client else (ErasureScope.PRINCIPAL, principal or "")
    hasher = container.hasher()
    named = request(whose=whose, key=hasher.client_name(given) if client else hasher.principal(given))
    if is_hash(given) and not store.count_erasable(named).total:
        return request(whose=whose, key=given)
    return named


def _find_session_id(store: AnalyticsPort, wanted: str) -> str:
    whole = parsed_uuid(wanted)
    if whole is not None:
        return str(whole)
    try:
        return str(find_session(store, wanted).session.id)
    except RiglmError:
        erased = [id_ for id_ in map(str, _list_erased(store)) if id_.endswith(wanted.lower())]
        if len(erased) != 1:
            raise
        return erased[0]


def _list_erased(store: AnalyticsPort) -> Sequence[UUID]:
    """Return the ids of all sessions that were ever erased: a second run completes what an earlier one could not."""
    return [id_ for each in store.list_erased_sessions() if (id_ := parsed_uuid(each.key)) is not None]


def _erase_archived(
    container: Container, whom: ErasureRequest, sessions: Sequence[UUID]
) -> tuple[int, RiglmError | None]:
    """Remove what ClickHouse has of a subject, and of erased sessions; return their number and what prevented it."""
    try:
        with container.clickhouse(timeout_seconds=_ARCHIVE_SECONDS) as archive:
            return archive.erase(whom, sessions, container.hasher().client_name), None
    except RiglmError as error:
        return 0, error


def _drop_shared(container: Container, settings: Settings, sessions: Sequence[UUID]) -> int:
    """Remove the sessions that Redis keeps for other processes, or report when they expire; return how many existed."""
    if settings.state.kind == "memory" or not sessions:
        return 0
    secret = container.hasher().derived_key("shared state")

    async def drop() -> int:
        async with container.state() as state:
            return await drop_sessions(state, secret, sessions)

    try:
        return asyncio.run(drop())
    except StateUnavailableError as error:
        seconds = max(settings.sessions.idle_gap, settings.downstream.session_idle)
        typer.echo(
            f"what Redis keeps of sessions could not be removed ({error}); it expires {seconds:g} seconds after "
            "their last request — or run this again",
            err=True,
        )
        return 0


@app.command()
def copy(
    to: Annotated[str, typer.Option("--to", metavar="URL|FILE", help="A URL of PostgreSQL, or a file of SQLite.")],
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy the store into another database, SQLite or PostgreSQL.

    It is safe while riglm is running, and continues after an interruption: what is there already is overwritten, and
    other records of the other database stay.
    """
    settings = settings_of(config)
    source = require_store(settings).store_url()
    target = to if "://" in to else f"sqlite:///{Path(to).expanduser().absolute()}"
    if database_file(target) == database_file(source) and target.split("?")[0] == source.split("?")[0]:
        raise ConfigurationError("--to: it is the store itself — fix: name a different database")
    rows = copying.count_rows(source)
    with progress("copying", sum(rows.values())) as advance:
        copying.copy_store(source, target, advance)
    copied = copying.count_rows(target)
    fields = {"to": safe_url(target), "tables": {name: {"rows": rows[name], "copied": copied[name]} for name in rows}}
    lines = [f"{rows[name]:>10} {copied[name]:>10}  {name}" for name in rows if copied[name]]
    lines = [f"{'store':>10} {'copy':>10}  table", *lines, f"hashes: {_SAME_KEY}"]
    print_result(fields, "\n".join(lines), as_json=as_json)


@app.command()
def upgrade(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Upgrade the store to the newest schema, or create it.

    `run` and `serve` do so by themselves.
    """
    _print_status(tables.upgrade(store_url(_load_settings(config))), None, as_json)


@app.command()
def status(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show where the store is, its schema, and what waits in spools.

    Nothing is created or changed.
    """
    settings = _load_settings(config)
    container = Container(settings=settings)
    _print_status(tables.status(container.store_url()), survey(*container.spool_paths()), as_json)


def _load_settings(config: Path | None) -> Settings:
    settings = load(Options(config=config, with_servers=False)).settings
    if settings.storage.kind == "memory":
        raise ConfigurationError(
            "storage.kind: the store is in memory and has no schema — fix: use sqlite or postgresql"
        )
    if settings.storage.kind == "sqlite":
        is_there(store_path(settings))
    return settings


def _print_status(found: SchemaStatus, spools: Sequence[SpoolStatus] | None, as_json: bool) -> None:
    fields: dict[str, Any] = asdict(found)
    if spools is not None:
        fields["spools"] = [asdict(spool) | {"path": str(spool.path)} for spool in spools]
    pending = ", ".join(found.pending) or "nothing"
    lines = [f"store    {found.url}", f"schema   {found.current or 'none yet'}", f"pending  {pending}"]
    for spool in spools or ():
        whose = "of a process that runs" if spool.is_held else "left behind: the next start stores or sends it"
        damage = f", {spool.damaged} damaged" if spool.damaged else ""
        newer = ", written by a newer riglm" if spool.is_newer else ""
        lines.append(f"spool    {spool.path}: {spool.records} records{damage}{newer}, {whose}")
    print_result(fields, "\n".join(lines), as_json=as_json)


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
    """Check that no line was changed, removed or added.

    Lines that are missing at the end are not found, those at the start only with --after. The hash of the last line is
    printed.
    """
    place = file or _get_audit_file(config)
    try:
        with place.open(encoding="utf-8", errors="replace") as lines:
            found = audit.verify((line.rstrip("\n") for line in lines), after)
    except OSError as error:
        raise UnusableInputError(f"{place} cannot be read ({error.strerror}) — fix: name the audit log") from error
    faults = [{"line": line, "fault": fault} for line, fault in found.faults]
    fields = {"file": str(place), "lines": found.lines, "last_hash": found.last, "faults": faults}
    shown = [f"line {line}: {fault}" for line, fault in found.faults[:_MAX_FAULTS]]
    shown.append(f"{found.lines} lines, the last one with the hash {found.last}")
    print_result(fields, "\n".join(shown), as_json=as_json)
    if not found.is_intact:
        count = len(found.faults) - len(found.cut)
        raise RiglmError(f"{place} was damaged or tampered with: {count} lines do not fit")


def _get_audit_file(config: Path | None) -> Path:
    place = configuration_of(config).settings.audit.file
    if not place or place == "-":
        raise ConfigurationError("audit.file names no file — fix: set it, or name the FILE to check")
    return Path(place).expanduser()
