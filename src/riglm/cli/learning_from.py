"""`riglm learn-from`: what clients did before riglm came, learned from the transcripts that they left on disk."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from riglm.adapters.analytics.engine import memory_database
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.adapters.clients.transcript_reading import is_written_by, list_transcripts
from riglm.adapters.clients.transcripts import SOURCES
from riglm.adapters.configuration.loading import FILE_NAME, Options, set_values
from riglm.adapters.configuration.locations import project_root, store_path
from riglm.application.setup.transcript_collecting import Collector, LiveCallMatcher, ProxyInstance, ToolNames
from riglm.application.setup.transcript_recording import PairTraining, record_sessions, record_token_usage
from riglm.cli.output import ConfigOption, JsonOption, McpJsonOption, print_json, print_table, printable, progress
from riglm.cli.setup_access import installations
from riglm.cli.store_access import PrincipalOption, is_there, load_hasher, owner_of, settings_of
from riglm.container import Container
from riglm.domain.client_setup import ENTRY
from riglm.domain.duration import format_count, parsed_moment
from riglm.domain.errors import UnusableInputError
from riglm.domain.hashing import KEY_BYTES, KeyedHasher
from riglm.domain.learning import learning_scope
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.domain.schemas.section import RetentionSettings
from riglm.domain.schemas.settings import Settings
from riglm.domain.transcripts import REASONS, ImportSummary, TranscriptSource
from riglm.domain.upstream import derive_name
from riglm.ports.analytics import AnalyticsPort

_MAX_SERVERS: Final = 10
_COLUMNS: Final = ("client", "files", "sessions", "calls", "tools", "servers", "known before", "left out")


def _print_summaries(
    summaries: Sequence[ImportSummary], kept: RetentionSettings, *, dry_run: bool, contexts_failed: str, as_json: bool
) -> None:
    """Print a table of clients and what was left out, or every number as JSON."""
    if as_json:
        clients = [_fields(each) for each in summaries]
        print_json({"dry_run": dry_run, "contexts_failed": contexts_failed or None, "clients": clients})
        return
    there = [each for each in summaries if each.files]
    if not there:
        typer.echo("no transcripts were found — fix: name a file or a folder of them, as in `riglm learn-from PATH`")
        return
    rows = []
    for each in there:
        read, new, known = (each.calls[reason] for reason in ("read", "new", "known"))
        counts = (each.files, each.sessions, new, len(each.tools), len(each.servers), known, read - new - known)
        rows.append((each.client, *counts))
    print_table("What would be learned" if dry_run else "What was learned", _COLUMNS, rows)
    for each in there:
        if each.requests:
            sessions = format_count(each.billed_sessions, "session")
            typer.echo(f"{each.client}: token usage of {format_count(each.requests, 'model request')} in {sessions}")
        for line in _remarks(each, kept):
            typer.echo(printable(f"{each.client}: {line}"), err=True)
    if contexts_failed:
        typer.echo(f"what was asked for is not learned: {contexts_failed}", err=True)
    if not dry_run and any(each.calls["new"] for each in there):
        typer.echo("a running riglm learns this when it starts again")


def _fields(summary: ImportSummary) -> dict[str, Any]:
    calls = {reason: summary.calls[reason] for reason in REASONS}
    return {
        "client": summary.client,
        "are_names_guessed": summary.are_names_guessed,
        "files": summary.files,
        "bytes": summary.size,
        "sessions": summary.sessions,
        "token_usage": {"sessions": summary.billed_sessions, "requests": summary.requests},
        "calls": {**calls, "elsewhere": summary.elsewhere.total()},
        "tools": sorted(summary.tools),
        "servers": sorted(summary.servers),
        "elsewhere": dict(sorted(summary.elsewhere.items())),
        "damaged_lines": summary.damaged_lines,
        "damaged": [{"file": file, "line": line, "reason": reason} for file, line, reason in summary.damaged],
        "unreadable": summary.unreadable,
    }


def _remarks(summary: ImportSummary, kept: RetentionSettings) -> list[str]:
    reasons = {
        "recorded_live": "were recorded by riglm itself",
        "copied": "are copies, in conversations that were resumed",
        "not_run": "did not run: they were refused, or there was no such tool",
        "too_old": "are older than --since",
        "expired": f"are older than the {kept.invocation_days:g} days that the store keeps — fix: set "
        "retention.invocation_days to more, or to 0 for no limit, and run this once more",
        "future": "are of a time that is still to come: the clock was wrong when they were written down",
        "forgotten": "are of an erased client, session or principal (riglm db forget)",
        "meta_tools": "were of meta-tools",
    }
    remarks = [f"left out: {summary.calls[each]} calls {what}" for each, what in reasons.items() if summary.calls[each]]
    if summary.are_names_guessed and summary.calls["new"]:
        remarks.append(
            "no configuration names its servers: tools are learned as SERVER__TOOL — fix, where riglm calls them "
            "otherwise: `riglm init`, or --config, and this once more"
        )
    if summary.elsewhere:
        most = sorted(summary.elsewhere.items(), key=lambda each: (-each[1], each[0]))
        named = ", ".join(f"{server} ({count})" for server, count in most[:_MAX_SERVERS])
        more = f" and {len(most) - _MAX_SERVERS} more" if len(most) > _MAX_SERVERS else ""
        remarks.append(
            f"left out: calls of servers that no riglm proxies: {named}{more} — fix: `riglm init` moves the "
            "servers of a client behind riglm; or name the configuration that has them by --config"
        )
    remarks += [f"left out: {file} line {line}: {reason}" for file, line, reason in summary.damaged]
    if summary.damaged_lines > len(summary.damaged):
        remarks.append(f"left out: {summary.damaged_lines - len(summary.damaged)} more lines that cannot be read")
    return remarks + [f"left out: {file}: {reason}" for file, reason in summary.unreadable.items()]


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
    settings = settings_of(config)
    now = time.time()
    found = _find_transcripts(paths or [], client or [])
    try:
        start = 0.0 if since is None else parsed_moment(since, now)
    except ValueError as error:
        raise UnusableInputError(f"--since {error}") from None
    kept_since = settings.retention.expiry(now).invocations or 0.0
    with _store(settings, dry_run=dry_run) as (store, hasher):
        listed, earliest = store.list_known_tools(), max(start, kept_since) - _BEFORE_SECONDS
        names = {each.client: ToolNames(find_proxies(config, mcp_json, each.client), listed) for each, _ in found}
        collector = Collector(
            names=names,
            live=LiveCallMatcher(store.list_training_sessions(_MAX_SESSIONS, earliest)),
            known=lambda id_: frozenset(call.id for call in store.list_invocations(id_)),
            hasher=hasher,
            since=start,
            kept_since=kept_since,
            until=now + _AHEAD_SECONDS,
            hashes_arguments=settings.privacy.arguments != "none",
        )
        size = sum(file.stat().st_size for _, files in found for file in files if file.is_file())
        with progress("reading bytes", size) as advance:
            for source, files in found:
                collector.collect(source, files, advance)
        fault = "" if dry_run else _record(settings, store, hasher, collector, owner_of(settings, principal), now)
    summaries = [*collector.summaries.values()]
    _print_summaries(summaries, settings.retention, dry_run=dry_run, contexts_failed=fault, as_json=as_json)


def _find_transcripts(paths: Sequence[Path], clients: Sequence[str]) -> list[tuple[TranscriptSource, list[Path]]]:
    """Return the files of each client: each file once, for the client that wrote it.

    Raises:
        UnusableInputError: there is no such client, or nothing at a path.
    """
    for name in clients:
        if name not in SOURCES:
            raise UnusableInputError(f"--client {name}: its transcripts cannot be read — fix: use {', '.join(SOURCES)}")
    chosen = [SOURCES[name] for name in dict.fromkeys(clients or SOURCES)]
    if not paths:
        return [(each, list_transcripts(each, each.places(Path.home(), os.environ))) for each in chosen]
    for path in paths:
        if not path.exists():
            raise UnusableInputError(f"{path}: there is nothing — fix: name a transcript or a folder of them")
        if not path.is_file() and not path.is_dir():
            raise UnusableInputError(f"{path}: it is a pipe or a device — fix: name a transcript or a folder of them")
    found: list[tuple[TranscriptSource, list[Path]]] = []
    taken: set[Path] = set()
    for source in chosen:
        files = []
        for file in list_transcripts(source, paths):
            if file.resolve() not in taken and (len(chosen) == 1 or is_written_by(source, file)):
                files.append(file)
                taken.add(file.resolve())
        found.append((source, files))
    return found


@contextmanager
def _store(settings: Settings, *, dry_run: bool) -> Iterator[tuple[AnalyticsPort, KeyedHasher]]:
    """The store and its hasher; to look only, nothing is made that is not there.

    Raises:
        AnalyticsUnavailableError: it cannot be used.
        ConfigurationError: its key cannot be kept.
    """
    if dry_run and settings.storage.kind == "sqlite" and not is_there(store_path(settings)):
        with memory_database() as url, SqlAnalytics(url) as empty:
            yield empty, KeyedHasher(os.urandom(KEY_BYTES))
        return
    hasher = load_hasher(settings)
    with Container(settings=settings).analytics() as store:
        yield store, hasher


def _record(
    settings: Settings, store: AnalyticsPort, hasher: KeyedHasher, collector: Collector, owner: str, now: float
) -> str:
    """Store what is new for a principal; return why contexts were not learned, or nothing."""
    record_token_usage(store, hasher, owner, collector.billed)
    new, most, profile = collector.new, settings.learning.max_pairs, settings.filtering.profile
    if not new:
        return ""
    scope = learning_scope(owner if settings.learning.scope == "principal" else "", profile)
    with (
        Container(settings=settings).embedders().always as embedder,
        progress("learning sessions", len(new)) as advance,
    ):
        pairs = LearnedPairs(hasher.derived_key("learned pairs"))
        pairs.restore(store.list_learned_pairs(embedder.model, most))
        fault = record_sessions(
            store,
            hasher,
            PairTraining(pairs, embedder, most_pairs=most, scope=scope, names=hasher.client_name),
            new,
            principal=owner,
            profile=profile,
            find_project=lambda directory: project_root(directory) if Path(directory).is_absolute() else "",
            most_pairs=most,
            open_since=now - settings.sessions.idle_gap,
            advance=advance,
        )
    collector.settle()
    return fault


_TRUE: Final = frozenset({"true", "1", "yes", "on", "y", "t"})  # as settings take a text for a truth
_MAX_SESSIONS: Final = 100_000
_BEFORE_SECONDS: Final = 7 * 86_400.0
"""A session that went on at some time began no longer before it."""

_AHEAD_SECONDS: Final = 3_600.0
"""Maximum clock difference in seconds between riglm and the client that wrote a transcript."""


def find_proxies(config: Path | None, mcp_json: Path | None, client: str) -> list[ProxyInstance]:
    """Return the riglm configurations in front of the servers of a client: the given one, or those by `riglm init`.

    Where it made none for this client, those of others may have its servers.

    Raises:
        ConfigurationError: a file that is named cannot be read.
    """
    everywhere = installations()
    if config is not None or mcp_json is not None or Path(FILE_NAME).is_file() or not everywhere:
        return [_proxy(set_values(Options(config=config, mcp_json=mcp_json)))]
    installed = [each for each in everywhere if each.client == client] or everywhere
    by_hand = {ENTRY} - {each.entry for each in everywhere}
    found = (
        (set_values(Options(config=each.configuration)), each) for each in installed if each.configuration.is_file()
    )
    return [_proxy(values, entries=frozenset({each.entry, *by_hand}), before=each.servers) for values, each in found]


def _proxy(values: Mapping[str, object], **others: Any) -> ProxyInstance:
    """The servers that a configuration names, whose variables may be unset here, and how it names their tools."""
    servers: tuple[str, ...] = ()
    match values:
        case {"upstream": {**upstream}}:
            given = (upstream.get("command"), upstream.get("args"))
            words = [word for each in given for word in (each if isinstance(each, list) else [each]) if word]
            servers = (derive_name([str(word) for word in words], str(upstream.get("url") or "")),)
        case {"mcpServers": {**named}}:
            servers = tuple(
                str(name)
                for name, said in named.items()
                if not (isinstance(said, dict) and str(said.get("disabled")).lower() in _TRUE)
            )
    match values.get("naming"):
        case ("on_collision" | "none") as naming:
            others["naming"] = naming
    return ProxyInstance(servers=servers, **others)
