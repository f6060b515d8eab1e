"""`riglm learn-from`: what clients did before riglm came, learned from the transcripts that they left on disk."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from riglm.cli.knowledge_access import PrincipalOption, owner_of
from riglm.cli.output import ConfigOption, JsonOption, McpJsonOption, print_json, print_table, printable, progress
from riglm.cli.store_access import is_there, settings_of
from riglm.domain.errors import UnusableInputError
from riglm.domain.plurals import format_count
from riglm.domain.transcripts import Account

if TYPE_CHECKING:
    from riglm.application.transcript_import.collecting import Collection, ImportContext
    from riglm.domain.hashing import KeyedHasher
    from riglm.domain.schemas.section import RetentionSettings
    from riglm.domain.schemas.settings import Settings
    from riglm.ports.analytics import AnalyticsPort
    from riglm.ports.clients import TranscriptsPort


_MAX_SERVERS: Final = 10
_COLUMNS: Final = ("client", "files", "sessions", "calls", "tools", "servers", "known before", "left out")


def show(accounts: Sequence[Account], kept: "RetentionSettings", *, dry_run: bool, contexts_failed: str) -> None:
    """A table of clients, and words on what was left out."""
    there = [account for account in accounts if account.files]
    if not there:
        typer.echo("no transcripts were found — fix: name a file or a folder of them, as in `riglm learn-from PATH`")
        return
    title = "What would be learned" if dry_run else "What was learned"
    print_table(title, _COLUMNS, [_row(account) for account in there])
    for account in there:
        if account.requests:
            sessions = format_count(account.billed_sessions, "session")
            requests = format_count(account.requests, "model request")
            typer.echo(f"{account.client}: token usage of {requests} in {sessions}")
        for line in _remarks(account, kept):
            typer.echo(printable(f"{account.client}: {line}"), err=True)
    if contexts_failed:
        typer.echo(f"what was asked for is not learned: {contexts_failed}", err=True)
    if not dry_run and any(account.new for account in there):
        typer.echo("a running riglm learns this when it starts again")


def shown_for_programs(accounts: Sequence[Account], *, dry_run: bool, contexts_failed: str) -> dict[str, Any]:
    """The same, and every number, for programs."""
    return {
        "dry_run": dry_run,
        "contexts_failed": contexts_failed or None,
        "clients": [
            {
                "client": account.client,
                "are_names_guessed": account.are_names_guessed,
                "files": account.files,
                "bytes": account.size,
                "sessions": account.sessions,
                "token_usage": {"sessions": account.billed_sessions, "requests": account.requests},
                "calls": {
                    "read": account.read,
                    "new": account.new,
                    "known": account.known,
                    "recorded_live": account.live,
                    "copied": account.copied,
                    "not_run": account.not_run,
                    "too_old": account.too_old,
                    "expired": account.expired,
                    "future": account.future,
                    "forgotten": account.forgotten,
                    "meta_tools": account.own,
                    "elsewhere": sum(account.elsewhere.values()),
                },
                "tools": sorted(account.tools),
                "servers": sorted(account.servers),
                "elsewhere": dict(sorted(account.elsewhere.items())),
                "damaged_lines": account.damaged_lines,
                "damaged": [{"file": file, "line": line, "reason": reason} for file, line, reason in account.damaged],
                "unreadable": account.unreadable,
            }
            for account in accounts
        ],
    }


def _row(account: Account) -> tuple[str | int, ...]:
    return (
        account.client,
        account.files,
        account.sessions,
        account.new,
        len(account.tools),
        len(account.servers),
        account.known,
        account.left_out - account.known,
    )


def _remarks(account: Account, kept: "RetentionSettings") -> list[str]:
    told = [
        (account.live, "calls were recorded by riglm itself"),
        (account.copied, "calls are copies, in conversations that were resumed"),
        (account.not_run, "calls did not run: they were refused, or there was no such tool"),
        (account.too_old, "calls are older than --since"),
        (
            account.expired,
            f"calls are older than the {kept.invocation_days:g} days that the store keeps — fix: set "
            "retention.invocation_days to more, or to 0 for no limit, and run this once more",
        ),
        (account.future, "calls are of a time that is still to come: the clock was wrong when they were written down"),
        (account.forgotten, "calls are of an erased client, session or principal (riglm db forget)"),
        (account.own, "calls were of meta-tools"),
    ]
    remarks = [f"left out: {count} {what}" for count, what in told if count]
    if account.are_names_guessed and account.new:
        remarks.append(
            "no configuration names its servers: tools are learned as SERVER__TOOL — fix, where riglm calls them "
            "otherwise: `riglm init`, or --config, and this once more"
        )
    if account.elsewhere:
        most = sorted(account.elsewhere.items(), key=lambda each: (-each[1], each[0]))
        named = ", ".join(f"{server} ({count})" for server, count in most[:_MAX_SERVERS])
        more = f" and {len(most) - _MAX_SERVERS} more" if len(most) > _MAX_SERVERS else ""
        remarks.append(
            f"left out: calls of servers that no riglm proxies: {named}{more} — fix: `riglm init` moves the "
            "servers of a client behind riglm; or name the configuration that has them by --config"
        )
    remarks += [f"left out: {file} line {line}: {reason}" for file, line, reason in account.damaged]
    if account.damaged_lines > len(account.damaged):
        remarks.append(f"left out: {account.damaged_lines - len(account.damaged)} more lines that cannot be read")
    return remarks + [f"left out: {file}: {reason}" for file, reason in account.unreadable.items()]


def learn_from(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH...", help="Transcripts, or folders of them; by default where clients keep them."),
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option(
            "--client", metavar="NAME", help="Client that wrote them, such as codex; may be given repeatedly."
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only calls since then: a date, or 30d for 30 days.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and count; store nothing.")] = False,
    principal: PrincipalOption = None,
    config: ConfigOption = None,
    mcp_json: McpJsonOption = None,
    as_json: JsonOption = False,
) -> None:
    """Learn from the transcripts of your clients.

    You can repeat it at any time.

    Of calls are kept: tool, time, whether it failed, and a keyed hash of the arguments. Token counts are kept for the
    prices of `riglm report`. Nothing leaves the machine.
    """
    from riglm.cli.transcript_access import background, fronts

    settings = settings_of(config)
    now = time.time()
    found = _transcripts(paths or [], client or [])
    with _store(settings, dry_run=dry_run) as (store, hasher):
        by_client = {source.client: fronts(config, mcp_json, source.client) for source, _ in found}
        collection = _collected(background(settings, store, hasher, by_client, _since(since, now), now), found)
        stopped = "" if dry_run else _recorded(settings, store, hasher, collection, owner_of(settings, principal), now)
    if as_json:
        print_json(shown_for_programs(collection.accounts, dry_run=dry_run, contexts_failed=stopped))
    else:
        show(collection.accounts, settings.retention, dry_run=dry_run, contexts_failed=stopped)


def _transcripts(paths: Sequence[Path], clients: Sequence[str]) -> "list[tuple[TranscriptsPort, list[Path]]]":
    """The files of each client.

    Raises:
        UnusableInputError: there is no such client, or nothing at a path.
    """
    from riglm.cli.transcript_access import transcripts

    sources = {source.client: source for source in transcripts(Path.home(), os.environ)}
    for name in clients:
        if name not in sources:
            raise UnusableInputError(f"--client {name}: its transcripts cannot be read — fix: use {', '.join(sources)}")
    chosen = [sources[name] for name in dict.fromkeys(clients or sources)]
    if not paths:
        return [(source, source.files()) for source in chosen]
    for path in paths:
        if not path.exists():
            raise UnusableInputError(f"{path}: there is nothing — fix: name a transcript or a folder of them")
        if not path.is_file() and not path.is_dir():
            raise UnusableInputError(f"{path}: it is a pipe or a device — fix: name a transcript or a folder of them")
    return _shared_out(chosen, paths)


def _shared_out(
    sources: "Sequence[TranscriptsPort]", paths: Sequence[Path]
) -> "list[tuple[TranscriptsPort, list[Path]]]":
    """The files at some paths, each once, given to the client that wrote it."""
    found: list[tuple[TranscriptsPort, list[Path]]] = []
    taken: set[Path] = set()
    for source in sources:
        its = []
        for file in dict.fromkeys(file for path in paths for file in source.files(path)):
            if file.resolve() not in taken and (len(sources) == 1 or source.wrote(file)):
                its.append(file)
                taken.add(file.resolve())
        found.append((source, its))
    return found


def _since(since: str | None, now: float) -> float:
    from riglm.domain.duration import parsed_moment

    try:
        return 0.0 if since is None else parsed_moment(since, now)
    except ValueError as error:
        raise UnusableInputError(f"--since {error}") from None


@contextmanager
def _store(settings: "Settings", *, dry_run: bool) -> "Iterator[tuple[AnalyticsPort, KeyedHasher]]":
    """The store and its hasher; to look only, nothing is made that is not there.

    Raises:
        AnalyticsUnavailableError: it cannot be used.
        ConfigurationError: its key cannot be kept.
    """
    from riglm.adapters.analytics.sql import SqlAnalytics
    from riglm.adapters.analytics.sqlite import memory_database
    from riglm.cli.transcript_access import passing_hasher, steady_hasher
    from riglm.composition.container import Container
    from riglm.composition.storage import store_path

    if dry_run and settings.storage.kind == "sqlite" and not is_there(store_path(settings)):
        with memory_database() as url, SqlAnalytics(url) as empty:
            yield empty, passing_hasher()
        return
    hasher = steady_hasher(settings)
    with Container(settings).create_store() as store:
        yield store, hasher


def _collected(known: "ImportContext", found: "list[tuple[TranscriptsPort, list[Path]]]") -> "Collection":
    from riglm.application.transcript_import.collecting import Collector

    collector = Collector(known)
    size = sum(file.stat().st_size for _, files in found for file in files if file.is_file())
    with progress("reading bytes", size) as advance:
        for source, files in found:
            collector.collect(source, files, advance)
    return collector.found


def _recorded(
    settings: "Settings",
    store: "AnalyticsPort",
    hasher: "KeyedHasher",
    collection: "Collection",
    principal: str,
    now: float,
) -> str:
    """Store what is new; why contexts were not learned, or nothing."""
    from riglm.application.transcript_import.recording import ImportRecorder, record_token_usage
    from riglm.cli.transcript_access import context_lessons, find_project

    record_token_usage(store, hasher, principal, collection.billed)
    new = collection.new
    if not new:
        return ""
    with context_lessons(settings, store, hasher, principal) as training_queue:
        recorder = ImportRecorder(
            store,
            hasher,
            training_queue,
            principal=principal,
            profile=settings.filtering.profile,
            find_project=find_project,
            most_pairs=settings.learning.max_pairs,
            open_since=now - settings.sessions.idle_gap,
        )
        with progress("learning sessions", len(new)) as advance:
            recorder.record(new, advance)
    collection.settle()
    return recorder.contexts_failed
