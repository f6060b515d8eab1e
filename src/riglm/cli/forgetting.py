"""`riglm db forget`: erase a client, a session or a principal, and refuse its later records."""

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from riglm.cli.output import ConfigOption, JsonOption, print_json, printable, progress
from riglm.cli.store_access import alone, is_hash, opened, paced, settings_of
from riglm.domain.duration import format_count
from riglm.domain.errors import ConfigurationError, RiglmError, StateUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from riglm.domain.retention import ErasureRequest, ErasureScope, RemovedCounts
    from riglm.domain.schemas.settings import Settings
    from riglm.ports.analytics import AnalyticsPort

_ARCHIVE_SECONDS: Final = 600.0
"""Maximum time for one statement that erases in ClickHouse."""


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
    """Erase a client, a session or a principal, also what running processes and spools still hold of it."""
    from riglm.domain.retention import RemovedCounts

    settings = settings_of(config)
    _require_one(client, session, principal)
    removed, pieces, archived, problem = RemovedCounts(), 0, 0, None
    with opened(settings) as store:
        whom = _find_subject(settings, store, client, session, principal)
        subject = f"the {whom.whose.value} {printable(client or whom.key) or 'without a name'}"
        known, pieces = store.count_erasable(whom), _count_knowledge(settings, whom)
        is_known = bool(known.total or pieces or unseen)
        if is_known:
            reach = ", for all principals," if client is not None else ""
            question = f"Erase {known}{_format_pieces(pieces)} of {subject}{reach} permanently?"
            _ = yes or typer.confirm(question, abort=True, err=True)
            removed = _erase_stored(store, whom, known.total)
            pieces = _erase_knowledge(settings, whom) if pieces else 0
        sessions = _list_erased(store)
    dropped = _drop_shared(settings, sessions)
    if is_known:
        archived, problem = _erase_archived(settings, whom, sessions)
    elif not dropped:
        raise RiglmError(
            f"nothing is stored of {subject} — fix: look into `riglm sessions`, or add --unseen to drop what "
            "is still to be stored of it" + (" and to erase in ClickHouse" if settings.clickhouse.url else "")
        )
    waiting = _count_spooled(settings) if is_known else 0
    if as_json:
        counts = {"removed_from_redis": dropped, "removed_from_clickhouse": archived, "spooled": waiting}
        erased = asdict(removed) | {"knowledge": pieces}
        print_json({"whose": whom.whose.value, "key": whom.key, "removed": erased, **counts})
    else:
        lines = {
            f"removed: {removed}{_format_pieces(pieces)}": True,
            f"removed from Redis: {format_count(dropped, 'session')}": dropped,
            f"removed from ClickHouse: {format_count(archived, 'session')}": archived,
            f"{waiting} records wait in spools; those of {subject} are dropped instead of stored": waiting,
        }
        typer.echo("\n".join(line for line, is_shown in lines.items() if is_shown))
    if problem is not None:
        raise RiglmError(f"not erased in ClickHouse: {problem}, and run this again with --unseen") from problem


def _require_one(client: str | None, session: str | None, principal: str | None) -> None:
    if sum(given is not None for given in (client, session, principal)) != 1:
        raise ConfigurationError("whom to forget is not clear — fix: give one of --client, --session and --principal")
    if "" in {client, session}:
        raise ConfigurationError(
            "an empty --client or --session is no name — fix: give a name or an id as `riglm sessions` shows it"
        )


def _erase_stored(store: "AnalyticsPort", whom: "ErasureRequest", total: int) -> "RemovedCounts":
    from riglm.domain.retention import RemovedCounts

    removed = RemovedCounts()
    with alone(store), progress("forgetting", total) as advance:
        for step in paced(store.erase(whom)):
            removed += step
            advance(step.total)
        store.refresh_cooccurrences(time.time())  # what they used together counts no more
        for _ in paced(store.compact()):
            pass
    return removed


def _find_subject(
    settings: "Settings", store: "AnalyticsPort", client: str | None, session: str | None, principal: str | None
) -> "ErasureRequest":
    from riglm.container import Container
    from riglm.domain.retention import ErasureRequest, ErasureScope

    def request(whose: "ErasureScope", key: str) -> ErasureRequest:
        return ErasureRequest(whose=whose, key=key, at=time.time())

    if session is not None:
        return request(ErasureScope.SESSION, _find_session_id(store, session))
    if not client and not principal:
        return request(ErasureScope.PRINCIPAL, "")
    hasher = Container(settings=settings).hasher()
    whose, given = (ErasureScope.CLIENT, client) if client else (ErasureScope.PRINCIPAL, principal or "")
    named = request(whose, hasher.client_name(given) if client else hasher.principal(given))
    if is_hash(given) and not store.count_erasable(named).total:
        return request(whose, given)
    return named


def _find_session_id(store: "AnalyticsPort", wanted: str) -> str:
    from riglm.cli.usage import find_session
    from riglm.domain.session import parsed_uuid

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


def _list_erased(store: "AnalyticsPort") -> "Sequence[UUID]":
    """Return the ids of all sessions that were ever erased: a second run completes what an earlier one could not."""
    from riglm.domain.session import parsed_uuid

    ids = (parsed_uuid(each.key) for each in store.list_erased_sessions())
    return [id_ for id_ in ids if id_ is not None]


def _count_knowledge(settings: "Settings", whom: "ErasureRequest") -> int:
    """Return the number of knowledge pieces of a principal; only principals have any."""
    from riglm.container import Container
    from riglm.domain.retention import ErasureScope

    if whom.whose is not ErasureScope.PRINCIPAL:
        return 0
    with Container(settings=settings).knowledge() as knowledge:
        counts = knowledge.counts(whom.key, "")
    return counts.thoughts + counts.entities + counts.observations


def _erase_knowledge(settings: "Settings", whom: "ErasureRequest") -> int:
    from riglm.container import Container

    with Container(settings=settings).knowledge() as knowledge:
        return knowledge.forget_owner(whom.key)


def _format_pieces(pieces: int) -> str:
    return f", {pieces} pieces of knowledge" if pieces else ""


def _count_spooled(settings: "Settings") -> int:
    from riglm.adapters.spool.sqlite_spool import survey
    from riglm.container import Container

    return sum(spool.records for spool in survey(*Container(settings=settings).spool_paths()))


def _erase_archived(
    settings: "Settings", whom: "ErasureRequest", sessions: "Sequence[UUID]"
) -> tuple[int, RiglmError | None]:
    """Remove what ClickHouse has of a subject, and of erased sessions; return their number and what prevented it."""
    from riglm.container import Container

    if settings.clickhouse.url is None:
        return 0, None
    container = Container(settings=settings)
    try:
        with container.clickhouse(timeout_seconds=_ARCHIVE_SECONDS) as archive:
            return archive.erase(whom, sessions, container.hasher().client_name), None
    except RiglmError as error:
        return 0, error


def _drop_shared(settings: "Settings", sessions: "Sequence[UUID]") -> int:
    """Remove the sessions that Redis keeps for other processes, or report when they expire; return how many existed."""
    import asyncio

    from riglm.application.session_sharing.signing import drop_sessions
    from riglm.container import Container

    if settings.state.kind == "memory" or not sessions:
        return 0
    container = Container(settings=settings)
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
