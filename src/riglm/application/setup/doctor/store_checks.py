"""Checks of the store: its database, its files, what waits for it, and what it holds."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from riglm.application.setup.doctor.client_checks import check_recorded_client
from riglm.application.setup.doctor.tool_checks import check_changed_tools
from riglm.domain.errors import AnalyticsUnavailableError, SchemaTooNewError
from riglm.domain.finding import DoctorSection, Finding, Severity
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.schemas.settings import Settings
from riglm.domain.store_status import SpoolStatus, StoreStatus
from riglm.domain.tool_pin import OnChange

_MIN_FREE_BYTES: Final = 256 << 20
_MIB: Final = 1 << 20
_WRITABLE_BY_OTHERS: Final = 0o022
_DAY: Final = 86_400.0
_AHEAD_SECONDS: Final = 300.0
_SET_CLOCK: Final = "set the clock, for example with `timedatectl set-ntp true`"
_finding: Final = partial(Finding, DoctorSection.STORE)
_knowledge_finding: Final = partial(Finding, DoctorSection.KNOWLEDGE)


def check_store(
    look: Callable[[], StoreStatus],
    settings: Settings,
    rules: Mapping[str, FilteringSettings],
    on_change: Mapping[str, OnChange],
) -> Iterator[Finding]:
    """Report on a store and what it holds: clients, knowledge and changed tools.

    `rules` are by client, `on_change` by server; tools of other servers are left out.
    """
    try:
        status = look()
    except SchemaTooNewError as error:
        words = str(error).rpartition(": ")[0] or str(error)
        yield _finding(Severity.ERROR, "schema", words, "pip install --upgrade riglm, or name another store")
        status = None
    except AnalyticsUnavailableError as error:
        words, _, fix = str(error).partition(" — fix: ")
        reach = "see `riglm config show` for where the store is, and that it can be reached from here"
        yield _finding(Severity.ERROR, "database", words, fix or reach)
        status = None
    if settings.knowledge.enabled:
        yield from _check_knowledge(status)
    else:
        yield _knowledge_finding(Severity.OK, "inner_voice.retrieve", "is disabled, as it is by default")
    if status is not None:
        yield from _check_database(status)
        yield from _check_records(status)
        yield from (check_recorded_client(client, settings.filtering, rules) for client in status.clients)
        yield from check_changed_tools(status.changed_tools, on_change)


def _check_database(status: StoreStatus) -> Iterator[Finding]:
    if status.schema is None:
        yield _finding(Severity.NOTE, "database", f"there is none at {status.place} yet: the first start makes it")
    else:
        size = f"{status.size_bytes / _MIB:.1f} MiB, " if status.size_bytes else ""
        yield _finding(Severity.OK, "database", f"{status.place}: {size}{status.sessions:,} sessions")
        if status.pending:
            pending = ", ".join(status.pending)
            what = f"the schema is {status.schema}, and {pending} are to come: the next start brings them"
            yield _finding(Severity.NOTE, "schema", what, "riglm db upgrade")
    if status.free_bytes is not None and status.free_bytes < _MIN_FREE_BYTES:
        what = f"only {status.free_bytes / _MIB:.0f} MiB are free on its disk"
        yield _finding(Severity.WARNING, "disk", what, "free disk space, or run `riglm db purge` and `riglm db vacuum`")
    if status.keeper:
        yield _finding(Severity.OK, "lease", f"{status.keeper} runs store maintenance at the moment")
    if status.writer:
        what = f"{status.writer} has held the right to write for more than a second: records of others wait"
        yield _finding(Severity.WARNING, "lock", what, "end that process, if it is none of riglm's")


def _check_records(status: StoreStatus) -> Iterator[Finding]:
    if status.schema is None or status.pending:
        return
    if status.seconds_ahead:  # a long pause looks like a wrong clock
        what = (
            f"this machine's clock is {status.seconds_ahead / _DAY:.0f} days ahead of the records of earlier days and "
            "of the last purge: age is measured at the later of the two until the clock has advanced for a day"
        )
        yield _finding(Severity.NOTE, "clock", what, "set the clock if it is wrong")
    age = time.time() - status.newest
    since = (
        f"the newest is {age / _DAY:.0f} days old" if age > 2 * _DAY else f"the newest is {age / 3600:.1f} hours old"
    )
    if not status.newest:
        fix = "point a client at riglm with `riglm init`, and restart the client"
        yield _finding(Severity.NOTE, "records", "nothing was recorded yet", fix)
    elif age < -_AHEAD_SECONDS:
        what = f"the newest record is {-age / 60:.0f} minutes ahead of this machine's clock"
        yield _finding(Severity.WARNING, "clock", what, _SET_CLOCK)
    elif age < 7 * _DAY:
        yield _finding(Severity.OK, "records", f"{since} old")
    else:
        yield _finding(Severity.NOTE, "records", f"{since} old", "see under clients whether they still start riglm")


def _check_knowledge(status: StoreStatus | None) -> Iterator[Finding]:
    name = "inner_voice.retrieve"
    if status is None:
        yield _knowledge_finding(Severity.ERROR, name, "the store cannot be read", "see under store")
        return
    kept = status.knowledge
    if kept is None or not kept.pieces:
        what = "is on, and there is nothing that it could find"
        yield _knowledge_finding(Severity.WARNING, name, what, "riglm knowledge import FILE")
        return
    yield _knowledge_finding(Severity.OK, name, f"{kept.pieces:,} pieces of knowledge")
    if kept.without_vector:
        what = f"{kept.without_vector:,} of {kept.pieces:,} pieces have no vector and are not found yet"
        yield _knowledge_finding(Severity.WARNING, "vectors", what, "riglm knowledge embed")


def check_store_files(
    directory: Path,
    private: Sequence[Path],
    spools: Iterable[SpoolStatus],
    *,
    is_writable: bool,
    shared_mode: Callable[[Path], str | None],
) -> Iterator[Finding]:
    """Check the `directory` with the files, those that only the user should be able to read, and the spools.

    `shared_mode` returns the mode of a file that other users of this machine may read.
    """
    if not is_writable:
        what = "riglm may not write there: nothing can be recorded"
        fix = f"chown {directory} to who runs riglm, or name another directory in RIGLM_DATA_DIR"
        yield _finding(Severity.ERROR, str(directory), what, fix)
    mode = shared_mode(directory)
    if mode is not None and int(mode, 8) & _WRITABLE_BY_OTHERS:
        what = f"other users of this machine may write there (mode {mode})"
        yield _finding(Severity.WARNING, str(directory), what, f"chmod go-w {directory}")
    for path in private:
        mode = shared_mode(path)
        if mode is not None:
            what = f"other users of this machine may read it (mode {mode})"
            yield _finding(Severity.WARNING, str(path), what, f"chmod go-rwx {path}")
    for spool in spools:
        place = str(spool.path)
        if spool.is_newer:
            yield _finding(Severity.WARNING, place, "a newer riglm wrote it", "upgrade riglm")
        if spool.damaged:
            what = f"{spool.damaged} records are damaged; the next start leaves them out"
            yield _finding(Severity.WARNING, place, what)
        if spool.records and not spool.is_held:
            what = f"{spool.records} records of an ended process wait; the next start stores or sends them"
            yield _finding(Severity.NOTE, place, what)
        elif spool.records:
            what = f"{spool.records} records of a process that runs wait for the store or ClickHouse"
            yield _finding(Severity.WARNING, place, what, "see that process's log for what it waits for")
