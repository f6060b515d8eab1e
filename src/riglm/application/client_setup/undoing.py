"""`riglm undo`: restores clients' files, or returns the servers to them, and removes riglm."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from riglm.domain.client_setup import (
    ClientServer,
    ClientSetup,
    FileChange,
    UndoPlan,
    digest,
    digest_of_configuration,
    entry_of,
    is_riglm,
)
from riglm.domain.errors import RiglmError
from riglm.ports.clients import ClientsPort, FilesPort, InstallationsPort, ServersFilePort


@dataclass(frozen=True, slots=True)
class _Found:
    """The result for a file without riglm; `lost` are the servers that could not be restored."""

    notes: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    is_exact: bool = True


class SetupUndoer:
    """Plans and does what takes installations back, the newest first."""

    def __init__(
        self, *, clients: ClientsPort, servers_file: ServersFilePort, files: FilesPort, installations: InstallationsPort
    ) -> None:
        """Nothing is read before the first plan."""
        self._clients = clients
        self._servers_file = servers_file
        self._files = files
        self._installations = installations

    def plans(self, clients: Collection[str], project: Path | None) -> tuple[UndoPlan, ...]:
        """One plan for each file, of these clients or of all when none is named; of one project if one is named."""
        by_file: dict[Path, list[ClientSetup]] = {}
        for each in reversed(self._installations.all()):
            if (not clients or each.client in clients) and (project is None or each.place.project == project):
                by_file.setdefault(each.file, []).append(each)
        return tuple(self._plan(file, found) for file, found in by_file.items())

    def undo_each(self, plans: Iterable[UndoPlan]) -> tuple[UndoPlan, ...]:
        """Undo each of these independently; returns the plans, with a fault for each that failed."""
        return tuple(map(self._tried, plans))

    def _tried(self, plan: UndoPlan) -> UndoPlan:
        try:
            self.undo(plan)
        except RiglmError as error:
            return replace(plan, fault=str(error))
        return plan

    def undo(self, plan: UndoPlan) -> None:
        """Write the client's file, then remove riglm's configurations, then the setup journal entries.

        Raises:
            RiglmError: something cannot be written, or became another file meanwhile.
        """
        for rewriting in plan.rewritings:
            self._files.write(rewriting.file, rewriting.before, rewriting.after)
        self._installations.drop(plan.installations)

    def _plan(self, file: Path, installations: Sequence[ClientSetup]) -> UndoPlan:
        client = installations[0].client
        try:
            now = self._files.read(file)
            is_missing = now is None and not self._files.has_folder(file)
            content, is_exact, notes, lost = now, not is_missing, list[str](), dict[Path, set[str]]()
            for each in installations:
                if is_missing:
                    lost.setdefault(each.configuration, set()).update(each.servers)
                    continue
                content, found = self._without(each, content)
                is_exact, notes = is_exact and found.is_exact, notes + found.notes
                lost.setdefault(each.configuration, set()).update(found.lost)
            of_riglm, more = self._configurations(installations, lost)
        except RiglmError as error:
            return UndoPlan(client=client, file=file, installations=tuple(installations), fault=str(error))
        gone = {name for names in lost.values() for name in names}
        names = dict.fromkeys(name for each in reversed(installations) for name in each.servers)
        return UndoPlan(
            client=client,
            file=file,
            installations=tuple(installations),
            returns=tuple(name for name in names if name not in gone),
            is_exact=is_exact,
            is_missing=is_missing,
            notes=tuple(notes + more),
            rewritings=(FileChange(file=file, before=now, after=content), *of_riglm),
        )

    def _without(self, installation: ClientSetup, content: bytes | None) -> tuple[bytes | None, _Found]:
        """Return the file without one installation, and the notes about it."""
        before = self._installations.kept(installation.before)
        if content is not None and before == content:
            return content, _Found()
        if before is None:
            raise RiglmError(
                f"the previous copy of {installation.file} is missing — fix: remove riglm's entry "
                f"{installation.entry!r} from it, and add the servers in {installation.configuration}"
            )
        if content is None or not content.strip() or digest(content) == installation.after:
            return before, _Found()
        try:
            return self._changed(installation, content, before)
        except RiglmError as error:
            copy = self._installations.where(installation.before)
            raise RiglmError(f"{error}; what it was before riglm is in {copy}") from None

    def _changed(self, installation: ClientSetup, content: bytes, before: bytes) -> tuple[bytes, _Found]:
        """The same of a file that was changed since: the changes stay."""
        place = installation.place
        if not installation.servers:
            return self._without_preloading(installation, content, before)
        there = {server.name: server for server in self._clients.servers(place, content)}
        were = {server.name: server for server in self._clients.servers(place, before)}
        entry = _entry(there, installation)
        returning = [name for name in installation.servers if name not in there or name == entry]
        others = [name for name in installation.servers if name not in returning]
        lost = [name for name in others if _means(there[name]) != _means(were.get(name))]
        if lost and self._files.read(installation.configuration) is None:
            raise RiglmError(
                f"{installation.file} has others now that are called {', '.join(lost)} — fix: give them other names"
            )
        notes = [f"{name}: is in the file again, and stays as it is there" for name in others]
        try:
            return self._clients.without_riglm(place, content, entry, before, returning), _Found(notes, lost, False)
        except RiglmError:
            if entry is not None:
                raise
        notes.append(f"riglm is not in {installation.file} any more, and there is no place for its servers")
        return content, _Found(notes, [*lost, *returning], False)

    def _without_preloading(self, installation: ClientSetup, content: bytes, before: bytes) -> tuple[bytes, _Found]:
        """The file without what `riglm enforce` wrote, for servers that an earlier installation moved."""
        place = installation.place
        entry = entry_of(self._clients.servers(place, content), installation.configuration)
        entries = [installation.entry, entry or installation.entry]
        try:
            return self._clients.without_preloading(place, content, entries, before), _Found(is_exact=False)
        except RiglmError as error:
            return content, _Found([str(error)], is_exact=False)

    def _configurations(
        self, installations: Sequence[ClientSetup], lost: Mapping[Path, Collection[str]]
    ) -> tuple[list[FileChange], list[str]]:
        """Plan what happens to riglm's files: a file with content that no other file has is kept under another name."""
        newest: dict[Path, ClientSetup] = {}
        for each in installations:
            newest.setdefault(each.configuration, each)
        rewritings, notes = [], []
        for file, installation in newest.items():
            content = self._files.read(file)
            names = sorted(lost.get(file, ()))
            if content is None:
                notes += [f"{file} is missing, and with it {', '.join(names)}"] if names else []
                continue
            is_changed = digest_of_configuration(content) != installation.configured
            if is_changed or names:
                aside = self._free_name(file)
                rewritings.append(FileChange(file=aside, before=None, after=content))
                if is_changed:
                    notes.append(f"you changed {file} since: it is kept as {aside.name}")
                    notes += self._added_by_hand(file, content, installations)
                if names:
                    notes.append(f"not put back, and kept in {aside}: {', '.join(names)}")
            rewritings.append(FileChange(file=file, before=content, after=None))
        return rewritings, notes

    def _added_by_hand(self, file: Path, content: bytes, installations: Sequence[ClientSetup]) -> list[str]:
        moved = {behind for each in installations if each.configuration == file for behind in each.servers.values()}
        added = [name for name in self._servers_file.servers(file, content) if name not in moved]
        return [f"only riglm knew {', '.join(added)}: not put into the client's file"] if added else []

    def _free_name(self, file: Path) -> Path:
        names = (file.with_name(f"{file.stem}.undone{number or ''}.yaml") for number in count())
        return next(name for name in names if self._files.read(name) is None)


def _entry(servers: Mapping[str, ClientServer], installation: ClientSetup) -> str | None:
    """What riglm is called in the file now: its user may have given it another name, or its name to something else."""
    found = entry_of(servers.values(), installation.configuration)
    if found is None and installation.entry in servers and is_riglm(servers[installation.entry]):
        return installation.entry
    return found


def _means(server: ClientServer | None) -> object:
    """Return what distinguishes a server from a different one of its name."""
    return server and (server.definition, server.starts, server.url)
