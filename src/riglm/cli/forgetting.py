"""`riglm db forget`: erase a client, a session or a principal, and refuse its later records."""

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from riglm.cli.output import ConfigOption, JsonOption, print_json, printable, progress
from riglm.cli.store_access import alone, is_hash, opened, paced, settings_of
from riglm.domain.errors import ConfigurationError, RiglmError, StateUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    from riglm.container import Container
    from riglm.domain.retention import RemovedCounts

    settings = settings_of(config)
    _one_of(client, session, principal)
    with opened(settings) as store:
        whom = _whom(settings, store, client, session, principal)
        subject = _told(whom, client)
        known, pieces = store.count_erasable(whom), _pieces(settings, whom)
        if not known.total and not pieces and not unseen:
            if dropped := _drop_shared(settings, store.list_erased_sessions()):
                if not as_json:
                    typer.echo(f"nothing is stored of {subject}, but Redis still held sessions that were erased")
                _notify(whom, RemovedCounts(), 0, dropped, 0, 0, as_json=as_json)
                return
            raise RiglmError(
                f"nothing is stored of {subject} — fix: look into `riglm sessions`, or add --unseen to drop what "
                "is still to be stored of it" + (" and to erase in ClickHouse" if settings.clickhouse.url else "")
            )
        if not yes:
            reach = ", for all principals," if client is not None else ""
            typer.confirm(f"Erase {known}{_and(pieces)} of {subject}{reach} permanently?", abort=True, err=True)
        removed = RemovedCounts()
        with alone(store), progress("forgetting", known.total) as advance:
            for step in paced(store.erase(whom)):
                removed += step
                advance(step.total)
            store.refresh_cooccurrences(time.time())  # what they used together counts no more
            for _ in paced(store.compact()):
                pass
        if pieces:
            with Container(settings=settings).knowledge() as knowledge:
                pieces = knowledge.forget_owner(whom.key)
        sessions = store.list_erased_sessions()
        dropped = _drop_shared(settings, sessions)
    archived, problem = _erase_archived(settings, whom, sessions)
    waiting = _spooled(settings)
    _notify(whom, removed, pieces, dropped, archived, waiting, as_json=as_json)
    if waiting and not as_json:
        typer.echo(f"{waiting} records wait in spools; those of {subject} are dropped instead of stored")
    if problem is not None:
        raise RiglmError(f"not erased in ClickHouse: {problem}, and run this again with --unseen") from problem


def _notify(
    whom: "ErasureRequest",
    removed: "RemovedCounts",
    pieces: int,
    dropped: int,
    archived: int,
    waiting: int,
    *,
    as_json: bool,
) -> None:
    if as_json:
        erased = asdict(removed) | {"knowledge": pieces}
        subject = {"removed": erased, "removed_from_redis": dropped, "removed_from_clickhouse": archived}
        print_json({"whose": whom.whose.value, "key": whom.key, **subject, "spooled": waiting})
        return
    typer.echo(f"removed: {removed}{_and(pieces)}")
    if dropped:
        typer.echo(f"removed from Redis: {dropped} {'session' if dropped == 1 else 'sessions'}")
    if archived:
        typer.echo(f"removed from ClickHouse: {archived} {'session' if archived == 1 else 'sessions'}")


def _one_of(client: str | None, session: str | None, principal: str | None) -> None:
    if sum(given is not None for given in (client, session, principal)) != 1:
        raise ConfigurationError("whom to forget is not clear — fix: give one of --client, --session and --principal")
    if "" in (client, session):
        raise ConfigurationError(
            "an empty --client or --session is no name — fix: give a name or an id as `riglm sessions` shows it"
        )


def _whom(
    settings: "Settings", store: "AnalyticsPort", client: str | None, session: str | None, principal: str | None
) -> "ErasureRequest":
    from riglm.container import Container
    from riglm.domain.retention import ErasureRequest, ErasureScope

    def forgotten(whose: "ErasureScope", key: str) -> ErasureRequest:
        return ErasureRequest(whose=whose, key=key, at=time.time())

    if session is not None:
        return forgotten(ErasureScope.SESSION, _session_id(store, session))
    if not client and not principal:
        return forgotten(ErasureScope.PRINCIPAL, "")
    hasher = Container(settings=settings).hasher()
    whose, given = (ErasureScope.CLIENT, client) if client else (ErasureScope.PRINCIPAL, principal or "")
    named = forgotten(whose, hasher.client_name(given) if client else hasher.principal(given))
    if is_hash(given) and not store.count_erasable(named).total:
        return forgotten(whose, given)
    return named


def _session_id(store: "AnalyticsPort", wanted: str) -> str:
    from riglm.cli.usage import find_session
    from riglm.domain.session import parsed_uuid

    whole = parsed_uuid(wanted)
    if whole is not None:
        return str(whole)
    try:
        return str(find_session(store, wanted).session.id)
    except RiglmError:
        erased = [each.key for each in store.list_erased_sessions() if each.key.endswith(wanted.lower())]
        if len(erased) != 1:
            raise
        return erased[0]


def _told(whom: "ErasureRequest", name: str | None) -> str:
    return f"the {whom.whose.value} {printable(name or whom.key) or 'without a name'}"


def _pieces(settings: "Settings", whom: "ErasureRequest") -> int:
    """Return the number of knowledge pieces of a principal; only principals have any."""
    from riglm.container import Container
    from riglm.domain.retention import ErasureScope

    if whom.whose is not ErasureScope.PRINCIPAL:
        return 0
    with Container(settings=settings).knowledge() as knowledge:
        counts = knowledge.counts(whom.key, "")
    return counts.thoughts + counts.entities + counts.observations


def _and(pieces: int) -> str:
    return f", {pieces} pieces of knowledge" if pieces else ""


def _spooled(settings: "Settings") -> int:
    from riglm.adapters.spool.sqlite import survey
    from riglm.container import Container

    return sum(spool.records for spool in survey(*Container(settings=settings).spool_paths()))


def _erase_archived(
    settings: "Settings", whom: "ErasureRequest", sessions: "Sequence[ErasureRequest]"
) -> tuple[int, RiglmError | None]:
    """Remove what ClickHouse has of a subject, and of all sessions that were ever erased.

    Returns:
        The number of sessions that it had, and why nothing was erased.
    """
    from riglm.container import Container
    from riglm.domain.session import parsed_uuid

    if settings.clickhouse.url is None:
        return 0, None
    container = Container(settings=settings)
    ids = [id_ for id_ in (parsed_uuid(session.key) for session in sessions) if id_ is not None]
    try:
        with container.clickhouse(timeout_seconds=_ARCHIVE_SECONDS) as archive:
            return archive.erase(whom, ids, container.hasher().client_name), None
    except RiglmError as error:
        return 0, error


def _drop_shared(settings: "Settings", sessions: "Sequence[ErasureRequest]") -> int:
    """Remove the sessions that Redis keeps for other processes, or report when they expire; return how many existed.

    This covers everything ever erased: a second run is made because Redis was unavailable during an earlier one.
    """
    if settings.state.kind == "memory" or not sessions:
        return 0
    import asyncio

    from riglm.application.session_sharing.signing import drop_sessions
    from riglm.container import Container
    from riglm.domain.session import parsed_uuid

    container = Container(settings=settings)
    secret = container.hasher().derived_key("shared state")
    ids = [id_ for id_ in (parsed_uuid(session.key) for session in sessions) if id_ is not None]

    async def drop() -> int:
        async with container.state() as state:
            return await drop_sessions(state, secret, ids)

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
