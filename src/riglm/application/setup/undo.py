"""What `riglm init` changed: the setup journal, and `riglm undo`.

Undo restores clients' files, or returns the servers to them, and removes riglm.
"""

import heapq
import json
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from riglm.application.setup.client_entries import read_servers
from riglm.application.setup.client_files import ClientFiles
from riglm.application.setup.json_members import FileNotEditableError
from riglm.domain import client_setup
from riglm.domain.errors import RiglmError

if TYPE_CHECKING:
    from riglm.domain.schemas.server import ServerSettings

_NAME: Final = "installed.json"

Read = Callable[[Path], bytes | None]
"""Returns the content of a file, None if there is none."""

Write = Callable[[Path, bytes | None, bytes | None], None]
"""Replaces the first content of a file by the second; None creates or deletes it."""

Plan = TypeVar("Plan", bound=client_setup.SetupPlan)
Definitions = Mapping[str, Mapping[str, Any]]
"""Servers of a configuration by name, as they are written."""


class SetupJournal:
    """Directories with the journal and the copies; the first takes what is new.

    riglm's data are not always in one directory.
    """

    def __init__(self, directories: Sequence[Path], read: Read, write: Write) -> None:
        """There is at least one directory; it need not exist."""
        self.directories = tuple(directories)
        self._read = read
        self._write = write

    def all(self) -> tuple[client_setup.ClientSetup, ...]:
        """Return every change that was not undone, the newest last; those of a journal that can be read."""
        found = []
        for directory in self.directories:
            try:
                found.append(self._load(directory))
            except RiglmError:
                continue
        return tuple(heapq.merge(*found, key=lambda each: each.at))

    def keep(self, place: client_setup.ConfigLocation, content: bytes) -> str:
        """Keep a copy of a client's file; return its name."""
        name = f"{place.key}-{secrets.token_hex(4)}{place.file.suffix}"
        self._put(self.directories[0] / name, None, content)
        return name

    def kept(self, name: str) -> bytes | None:
        """Return a copy; None if it was removed."""
        return self._read(self.where(name))

    def where(self, name: str) -> Path:
        """Return the path of a copy."""
        files = [directory / Path(name).name for directory in self.directories]
        return next((file for file in files if file.is_file()), files[0])

    def add(self, setup: client_setup.ClientSetup) -> None:
        """Note a change that is about to be made.

        Raises:
            RiglmError: the journal cannot be read or written.
        """
        directory = self.directories[0]
        self._save(directory, (*self._load(directory), setup))

    def forget(self, name: str) -> None:
        """Remove a copy."""
        file = self.where(name)
        self._write(file, self._read(file), None)

    def drop(self, setups: Sequence[client_setup.ClientSetup]) -> None:
        """Forget changes that were undone, and their copies."""
        for directory in self.directories:
            there = self._load(directory)
            if left := [each for each in there if each not in setups]:
                self._save(directory, left)
            elif there:
                self._write(directory / _NAME, self._read(directory / _NAME), None)
        for each in setups:
            self.forget(each.before)

    def _load(self, directory: Path) -> tuple[client_setup.ClientSetup, ...]:
        file = directory / _NAME
        try:
            content = self._read(file)
            return () if content is None else tuple(map(_from_json, json.loads(content)["installations"]))
        except (msgspec.ValidationError, ValueError, KeyError, TypeError) as error:
            raise FileNotEditableError(
                f"{file}: the record of what riglm changed cannot be read ({type(error).__name__}) — fix: the copies "
                "of the clients' files are next to it; put them back by hand and remove the record"
            ) from None

    def _save(self, directory: Path, setups: Sequence[client_setup.ClientSetup]) -> None:
        content = (json.dumps({"installations": list(map(_to_json, setups))}, indent=2) + "\n").encode()
        self._put(directory / _NAME, self._read(directory / _NAME), content)

    def _put(self, file: Path, before: bytes | None, content: bytes) -> None:
        try:
            self._write(file, before, content)
        except RiglmError as error:
            what, dash, fix = str(error).partition(" — fix: ")
            other = ", or name another directory by RIGLM_DATA_DIR" if "free space" not in fix else ""
            raise FileNotEditableError(f"{what}{dash}{fix}{other}") from None


def _to_json(setup: client_setup.ClientSetup) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(setup, enc_hook=str)
    return {**values.pop("place"), **values}


def _from_json(values: dict[str, Any]) -> client_setup.ClientSetup:
    values = {**values, "place": {name: values[name] for name in ("client", "file", "path", "project", "name")}}
    return msgspec.convert(values, client_setup.ClientSetup, dec_hook=lambda _, value: Path(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupContext:
    """What client setup works with.

    `command` starts riglm, `directory` holds its configurations, `env` goes into every client's entry, `environment` is
    the one that riglm was started in.

    `load_server` returns a server's settings, which is started in the directory, or raises RiglmError with why riglm
    cannot use it. `find_sign_ins` returns True for servers that require a sign-in and have no account, and None for
    those that do not respond.
    """

    clients: ClientFiles
    journal: SetupJournal
    read: Read
    write: Write
    command: tuple[str, ...]
    directory: Path
    env: Mapping[str, str]
    environment: Mapping[str, str]
    load_server: "Callable[[str, Mapping[str, Any], Path | None], ServerSettings]"
    find_sign_ins: "Callable[[Mapping[str, ServerSettings]], Mapping[str, bool | None]]"


@dataclass(frozen=True, slots=True)
class _Result:
    """The result for a file without one setup; `lost` are the servers that could not be restored."""

    content: bytes | None
    notes: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    is_exact: bool = True


def plan_undo(
    context: SetupContext, clients: Collection[str], project: Path | None
) -> tuple[client_setup.UndoPlan, ...]:
    """Return one plan for each file, of these clients or of all when none is named; of one project if one is named."""
    by_file: dict[Path, list[client_setup.ClientSetup]] = {}
    for each in reversed(context.journal.all()):
        if (not clients or each.client in clients) and (project is None or each.place.project == project):
            by_file.setdefault(each.file, []).append(each)
    return tuple(_plan_file(context, file, found) for file, found in by_file.items())


def carry_out(change: Callable[[Plan], None], plans: Iterable[Plan]) -> tuple[Plan, ...]:
    """Make each of these changes independently; return the plans, with a fault for each that failed."""
    tried = []
    for plan in plans:
        try:
            change(plan)
            tried.append(plan)
        except RiglmError as error:
            tried.append(replace(plan, fault=str(error)))
    return tuple(tried)


def undo(context: SetupContext, plan: client_setup.UndoPlan) -> None:
    """Write the client's file, then remove riglm's configurations, then the setup journal entries.

    Raises:
        RiglmError: something cannot be written, or became another file meanwhile.
    """
    for rewriting in plan.rewritings:
        context.write(rewriting.file, rewriting.before, rewriting.after)
    context.journal.drop(plan.installations)


def _plan_file(context: SetupContext, file: Path, setups: Sequence[client_setup.ClientSetup]) -> client_setup.UndoPlan:
    plan = client_setup.UndoPlan(place=setups[0].place, installations=tuple(setups))
    try:
        now = content = context.read(file)
        is_missing = now is None and not file.parent.is_dir()
        is_exact, notes, lost = not is_missing, list[str](), dict[Path, set[str]]()
        for each in setups:
            found = _Result(None, lost=[*each.servers]) if is_missing else _without(context, each, content)
            content, is_exact, notes = found.content, is_exact and found.is_exact, notes + found.notes
            lost.setdefault(each.configuration, set()).update(found.lost)
        of_riglm, more = _configurations(context, setups, lost)
    except RiglmError as error:
        return replace(plan, fault=str(error))
    gone = {name for names in lost.values() for name in names}
    names = dict.fromkeys(name for each in reversed(setups) for name in each.servers)
    return replace(
        plan,
        returns=tuple(name for name in names if name not in gone),
        is_exact=is_exact,
        is_missing=is_missing,
        notes=tuple(notes + more),
        rewritings=(client_setup.FileChange(file=file, before=now, after=content), *of_riglm),
    )


def _without(context: SetupContext, setup: client_setup.ClientSetup, content: bytes | None) -> _Result:
    """Return the file without one setup, and the notes about it."""
    before = context.journal.kept(setup.before)
    if content is not None and before == content:
        return _Result(content)
    if before is None:
        raise RiglmError(
            f"the previous copy of {setup.file} is missing — fix: remove riglm's entry "
            f"{setup.entry!r} from it, and add the servers in {setup.configuration}"
        )
    if content is None or not content.strip() or client_setup.digest(content) == setup.after:
        return _Result(before)
    try:
        return _changed(context, setup, content, before)
    except RiglmError as error:
        raise RiglmError(f"{error}; what it was before riglm is in {context.journal.where(setup.before)}") from None


def _changed(context: SetupContext, setup: client_setup.ClientSetup, content: bytes, before: bytes) -> _Result:
    """Return the same of a file that was changed since: the changes stay."""
    clients, place = context.clients, setup.place
    there = {server.name: server for server in clients.servers(place, content)}
    entry = client_setup.entry_of(there.values(), setup.configuration)
    if not setup.servers:  # `riglm enforce` changed riglm's entry
        try:
            entries = [setup.entry, entry or setup.entry]
            return _Result(clients.without_preloading(place, content, entries, before), is_exact=False)
        except RiglmError as error:
            return _Result(content, [str(error)], is_exact=False)
    if entry is None and setup.entry in there and client_setup.is_riglm(there[setup.entry]):
        entry = setup.entry  # with another configuration
    were = {server.name: server for server in clients.servers(place, before)}
    returning = [name for name in setup.servers if name not in there or name == entry]
    others = [name for name in setup.servers if name not in returning]
    lost = [name for name in others if _identity(there[name]) != _identity(were.get(name))]
    if lost and context.read(setup.configuration) is None:
        raise RiglmError(f"{setup.file} has others now that are called {', '.join(lost)} — fix: give them other names")
    notes = [f"{name}: is in the file again, and stays as it is there" for name in others]
    try:
        return _Result(clients.without_riglm(place, content, entry, before, returning), notes, lost, False)
    except RiglmError:
        if entry is not None:
            raise
    notes.append(f"riglm is not in {setup.file} any more, and there is no place for its servers")
    return _Result(content, notes, [*lost, *returning], False)


def _identity(server: client_setup.ClientServer | None) -> object:
    """Return what distinguishes a server from a different one of its name."""
    return server and (server.definition, server.starts, server.url)


def _configurations(
    context: SetupContext, setups: Sequence[client_setup.ClientSetup], lost: Mapping[Path, Collection[str]]
) -> tuple[list[client_setup.FileChange], list[str]]:
    """Plan what happens to riglm's files: a file with content that no other file has is kept under another name."""
    newest = {each.configuration: each for each in reversed(setups)}
    rewritings, notes = [], []
    for file, setup in newest.items():
        content = context.read(file)
        names = sorted(lost.get(file, ()))
        if content is None:
            notes += [f"{file} is missing, and with it {', '.join(names)}"] if names else []
            continue
        is_changed = client_setup.digest(content) != setup.configured
        if is_changed or names:
            free = (file.with_name(f"{file.stem}.undone{number or ''}.yaml") for number in count())
            aside = next(name for name in free if context.read(name) is None)
            rewritings.append(client_setup.FileChange(file=aside, before=None, after=content))
            if is_changed:
                notes.append(f"you changed {file} since: it is kept as {aside.name}")
                moved = {name for each in setups if each.configuration == file for name in each.servers.values()}
                added = [name for name in read_servers(file, content) if name not in moved]
                notes += [f"only riglm knew {', '.join(added)}: not put into the client's file"] if added else []
            if names:
                notes.append(f"not put back, and kept in {aside}: {', '.join(names)}")
        rewritings.append(client_setup.FileChange(file=file, before=content, after=None))
    return rewritings, notes
