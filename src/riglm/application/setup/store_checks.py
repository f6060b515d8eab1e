"""Checks of the store: its database, its files, what waits for it, and the clients and tools in it."""

import shlex
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

from riglm.application.setup.tool_checks import check_changed_tools
from riglm.domain.client_setup import ClientSetup, RiglmServerEntry
from riglm.domain.client_support import ChosenSurface, choose_surface, support_of
from riglm.domain.doctor import DoctorSection, Finding, RecordedClient, Severity, SpoolStatus, StoreStatus
from riglm.domain.errors import AnalyticsUnavailableError, SchemaTooNewError
from riglm.domain.exposure import Surface
from riglm.domain.redaction import RUNNERS, mask_address
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.schemas.settings import Settings
from riglm.domain.session import ProtocolEra
from riglm.domain.tool_pin import OnChange

_client_finding: Final = partial(Finding, DoctorSection.CLIENTS)
_BY_HAND: Final = "correct its command in the file"


def check_recorded_client(
    client: RecordedClient, filtering: FilteringSettings, by_client: Mapping[str, FilteringSettings]
) -> Finding:
    """Report which surface a recorded client gets, and how it handles a list that changes.

    `by_client` are the rules of clients with a separate riglm process, by the names that `riglm init` uses.
    """
    name = client.name or "a client without a name"
    known = support_of(client.name)
    surface, reason, _ = _surface(client, by_client.get(known.key, filtering) if known else filtering)
    list_changed_support = known.list_changed_support.description if known else "is not known to riglm"
    what = (
        f"{client.version or 'no version'}, {client.era} era over {client.transport}, {client.sessions:,} sessions; "
        f"surface: {surface}, because {reason}; when the list changes it {list_changed_support}"
    )
    severity, fix = Severity.OK, ""
    if surface is Surface.DYNAMIC and known is None:
        severity, fix = Severity.NOTE, "if new tools do not reach it, set `filtering.clients: {NAME: stable}`"
    elif surface is Surface.DYNAMIC and known is not None and not known.follows_changes:
        severity, fix = Severity.WARNING, f'set `filtering.clients: {{"{known.names[0]}": stable}}`'
    return _client_finding(severity, name, what, fix)


def _surface(client: RecordedClient, rules: FilteringSettings) -> ChosenSurface:
    if not rules.is_on or rules.strategy == "none" or rules.mode == "shadow":
        return ChosenSurface(Surface.FULL, "no list is filtered")
    era = ProtocolEra.MODERN if client.era == ProtocolEra.MODERN else ProtocolEra.HANDSHAKE
    return choose_surface(client.name, era, rules.clients, client.no_tool_search, rules.surface)


def check_client_files(
    entries: Sequence[RiglmServerEntry],
    setups: Sequence[ClientSetup],
    version_of: Callable[[Sequence[str]], str | None],
    *,
    version: str,
    enforced: Collection[Path | None] = (),
) -> Iterator[Finding]:
    """Check whether the files of clients still start riglm, and whether it is this one, of this `version`.

    `setups` are what `riglm init` did. `version_of` returns the version of the riglm that a command line starts, None
    if that is none. `enforced` are the configurations in enforce mode, None the one of a riglm that is given none.
    """
    for entry in entries:
        severity, what, fix = Severity.WARNING, entry.fault, "correct the file"
        if not entry.fault:
            severity, what, fix = _check_entry(entry, setups, version_of, version)
        if severity is Severity.OK and entry.may_defer and _configuration(entry.command) in enforced:
            severity = Severity.WARNING
            what += ", and may keep riglm's short list from the model until that searches for tools"
            by_hand = "docs/how-to/clients.md names the setting that loads them at once"
            fix = "riglm enforce" if _setup_of(entry, setups) else by_hand
        yield _client_finding(severity, f"{entry.client} {entry.file}", what, fix)
    there = {each.file for each in entries if not each.fault}
    changed = [each for each in setups if each.file not in there]
    for each in changed:
        what = "it does not start riglm any more: its file was changed"
        yield _client_finding(Severity.WARNING, f"{each.client} {each.file}", what, _set_up_again(each, setups))
    if not entries and not changed:
        what = "none that is known on this machine starts riglm"
        yield _client_finding(Severity.NOTE, "files", what, "riglm init --dry-run shows what it would do")


def _check_entry(
    entry: RiglmServerEntry,
    setups: Sequence[ClientSetup],
    version_of: Callable[[Sequence[str]], str | None],
    version: str,
) -> tuple[Severity, str, str]:
    """Return how an entry of a client is: the severity, what was found and the fix."""
    if not entry.command:
        return Severity.OK, f"reaches riglm at {mask_address(entry.url)}", ""
    setup, program, configuration = _setup_of(entry, setups), entry.command[0], _configuration(entry.command)
    fix = f"riglm init{_options(setup)}" if setup else _BY_HAND
    if shutil.which(program) is None:
        return Severity.ERROR, f"it starts {program}, which is not there", fix
    if configuration is not None and not configuration.is_file():
        fix = _set_up_again(setup, setups) if setup else _BY_HAND
        return Severity.ERROR, f"it starts riglm with {configuration}, which is not there", fix
    is_runner = RUNNERS.fullmatch(Path(program).name) is not None and "-m" not in entry.command
    release = None if is_runner else version_of(entry.command)  # uvx might download it to ask for a version
    if is_runner or release == version:
        return Severity.OK, f"starts riglm by {program}" if is_runner else f"starts riglm {release} at {program}", ""
    if release is None:
        what = f"it starts {program}, which does not identify itself as riglm"
        return Severity.ERROR, what, f"see what `{program} --version` says; {fix}"
    return Severity.WARNING, f"it starts riglm {release} at {program}, and this one is {version}", fix


def _setup_of(entry: RiglmServerEntry, setups: Sequence[ClientSetup]) -> ClientSetup | None:
    return next((each for each in setups if str(each.configuration) in entry.command), None)


def _set_up_again(setup: ClientSetup, setups: Sequence[ClientSetup]) -> str:
    """Return the commands for a setup that is incomplete: `undo` takes all places of a client, or of a project."""
    project = setup.place.project
    undone = [
        each for each in setups if each.client == setup.client and (project is None or each.place.project == project)
    ]
    again = dict.fromkeys(f"riglm init{_options(each)}" for each in undone)
    return f"riglm undo{_options(setup)}, then, to have riglm there again, {' and '.join(again)}"


def _options(setup: ClientSetup) -> str:
    of_project = f" --project {shlex.quote(str(setup.place.project))}" if setup.place.project is not None else ""
    return f" --client {setup.client}{of_project}"


def _configuration(command: Sequence[str]) -> Path | None:
    """Return the file that `--config` names, if it is named by its whole path."""
    named = next((after for word, after in pairwise(command) if word == "--config"), None)
    return Path(named) if named and Path(named).is_absolute() else None


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
        yield _finding(Severity.ERROR, "schema", words, "upgrade riglm, or name another store")
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
        yield _finding(Severity.OK, "records", since)
    else:
        yield _finding(Severity.NOTE, "records", since, "see under clients whether they still start riglm")


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
