"""Whether what is recorded has a place, and how it is there."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from riglm.application.doctor.check import Check, SharedProbe, aside
from riglm.domain.errors import AnalyticsUnavailableError, SchemaTooNewError
from riglm.domain.finding import DoctorSection, Finding, Severity, finding
from riglm.ports.doctor import FileInspectorPort, SpoolStatus, StoreStatus

_MIN_FREE: Final = 256 << 20
_MIB: Final = 1 << 20
_WRITABLE_BY_OTHERS: Final = 0o022
_DAY: Final = 86_400.0
_AHEAD: Final = 300.0
_finding: Final = partial(finding, DoctorSection.STORE)


class StoreCheck(Check):
    """Checks the store, the spool and the files next to it, without creating or changing anything."""

    sections = (DoctorSection.STORE,)

    def __init__(
        self,
        store: SharedProbe[StoreStatus],
        spools: Callable[[], Sequence[SpoolStatus]],
        files: FileInspectorPort,
        *,
        directory: Path,
        private: Sequence[Path],
    ) -> None:
        """`directory` contains the files; `private` are files that only the user should be able to read."""
        self._store = store
        self._spools = spools
        self._files = files
        self._directory = directory
        self._private = private

    async def examine(self) -> Sequence[Finding]:
        return [*await self._of_store(), *await aside(self._of_files), *await aside(self._waiting)]

    async def _of_store(self) -> list[Finding]:
        try:
            facts = await self._store.facts()
        except SchemaTooNewError as error:
            words = str(error).rpartition(": ")[0] or str(error)
            return [_finding(Severity.ERROR, "schema", words, "pip install --upgrade riglm, or name another store")]
        except AnalyticsUnavailableError as error:
            words, _, fix = str(error).partition(" — fix: ")
            return [_finding(Severity.ERROR, "database", words, fix or _reach())]
        return [_opened(facts), *_schema(facts), *_room(facts), *_newest(facts), *_ahead(facts), *_cooccurrences(facts)]

    def _of_files(self) -> list[Finding]:
        found = []
        if not self._files.is_writable(self._directory):
            what = "riglm may not write there: nothing can be recorded"
            fix = f"chown {self._directory} to who runs riglm, or name another directory in RIGLM_DATA_DIR"
            found.append(_finding(Severity.ERROR, str(self._directory), what, fix))
        shared = self._files.exposed(self._directory)
        if shared is not None and int(shared.mode, 8) & _WRITABLE_BY_OTHERS:
            what = f"other users of this machine may write there (mode {shared.mode})"
            found.append(_finding(Severity.WARNING, str(self._directory), what, f"chmod go-w {self._directory}"))
        for path in self._private:
            exposed = self._files.exposed(path)
            if exposed is not None:
                what = f"other users of this machine may read it (mode {exposed.mode})"
                found.append(_finding(Severity.WARNING, str(path), what, f"chmod go-rwx {path}"))
        return found

    def _waiting(self) -> list[Finding]:
        found = []
        for spool in self._spools():
            if spool.is_newer:
                found.append(_finding(Severity.WARNING, spool.place, "a newer riglm wrote it", "upgrade riglm"))
            if spool.damaged:
                what = f"{spool.damaged} records are damaged; the next start leaves them out"
                found.append(_finding(Severity.WARNING, spool.place, what))
            if spool.records and not spool.is_held:
                what = f"{spool.records} records of an ended process wait; the next start stores or sends them"
                found.append(_finding(Severity.NOTE, spool.place, what))
            elif spool.records:
                what = f"{spool.records} records of a process that runs wait for the store or ClickHouse"
                found.append(
                    _finding(Severity.WARNING, spool.place, what, "see that process's log for what it waits for")
                )
        return found


def _opened(facts: StoreStatus) -> Finding:
    if facts.schema is None:
        return _finding(Severity.NOTE, "database", f"there is none at {facts.place} yet: the first start makes it")
    size = f"{facts.size_bytes / _MIB:.1f} MiB, " if facts.size_bytes else ""
    return _finding(Severity.OK, "database", f"{facts.place}: {size}{facts.sessions:,} sessions")


def _schema(facts: StoreStatus) -> list[Finding]:
    if facts.schema is None or not facts.pending:
        return []
    what = f"the schema is {facts.schema}, and {', '.join(facts.pending)} are to come: the next start brings them"
    return [_finding(Severity.NOTE, "schema", what, "riglm db upgrade")]


def _room(facts: StoreStatus) -> list[Finding]:
    if facts.free_bytes is None or facts.free_bytes >= _MIN_FREE:
        return []
    what = f"only {facts.free_bytes / _MIB:.0f} MiB are free on its disk"
    return [_finding(Severity.WARNING, "disk", what, "free disk space, or run `riglm db purge` and `riglm db vacuum`")]


def _newest(facts: StoreStatus) -> list[Finding]:
    if facts.schema is None or facts.pending:
        return []
    if not facts.newest:
        fix = "point a client at riglm with `riglm init`, and restart the client"
        return [_finding(Severity.NOTE, "records", "nothing was recorded yet", fix)]
    age = time.time() - facts.newest
    if age < -_AHEAD:
        what = f"the newest record is {-age / 60:.0f} minutes ahead of this machine's clock"
        return [_finding(Severity.WARNING, "clock", what, "set the clock, for example with `timedatectl set-ntp true`")]
    since = f"{age / _DAY:.0f} days" if age > 2 * _DAY else f"{age / 3600:.1f} hours"
    if age < 7 * _DAY:
        return [_finding(Severity.OK, "records", f"the newest is {since} old")]
    fix = "see under clients whether they still start riglm"
    return [_finding(Severity.NOTE, "records", f"the newest is {since} old", fix)]


def _ahead(facts: StoreStatus) -> list[Finding]:
    """A long pause looks like a wrong clock."""
    if not facts.seconds_ahead:
        return []
    what = (
        f"this machine's clock is {facts.seconds_ahead / _DAY:.0f} days ahead of the records of earlier days and of "
        "the last purge: age is measured at the later of the two until the clock has advanced for a day"
    )
    return [_finding(Severity.NOTE, "clock", what, "set the clock if it is wrong")]


def _cooccurrences(facts: StoreStatus) -> list[Finding]:
    found = []
    if facts.keeper:
        found.append(_finding(Severity.OK, "lease", f"{facts.keeper} runs store maintenance at the moment"))
    if facts.writer:
        what = f"{facts.writer} has held the right to write for more than a second: records of others wait"
        found.append(_finding(Severity.WARNING, "lock", what, "end that process, if it is none of riglm's"))
    return found


def _reach() -> str:
    return "see `riglm config show` for where the store is, and that it can be reached from here"
