"""What `riglm init` would do: found out whole, before anything is written."""

import shlex
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from riglm.domain.access import is_loopback
from riglm.domain.client_setup import (
    ClientServer,
    ClientSetup,
    ConfigLocation,
    FileChange,
    InstallPlan,
    MovedServer,
    SkippedServer,
    digest,
    digest_of_configuration,
    entry_of,
    is_riglm,
    names_behind,
)
from riglm.domain.errors import RiglmError
from riglm.ports.clients import ClientsPort, FilesPort, InstallationsPort, ServersFilePort

if TYPE_CHECKING:
    from riglm.domain.schemas.server import ServerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupEnvironment:
    """What an installation is made with.

    `command` starts riglm, `directory` holds its configurations, `env` goes into every client's entry, `environment`
    is the one that riglm was asked in.
    """

    command: tuple[str, ...]
    directory: Path
    env: Mapping[str, str]
    environment: Mapping[str, str]


class SetupPlanner:
    """Plans place after place; what an earlier plan makes of a file, a later one starts from."""

    def __init__(
        self,
        *,
        clients: ClientsPort,
        servers_file: ServersFilePort,
        files: FilesPort,
        installations: InstallationsPort,
        surroundings: SetupEnvironment,
        find_sign_ins: "Callable[[Mapping[str, ServerSettings]], Mapping[str, bool | None]]",
    ) -> None:
        """Nothing is read before the first plan.

        `find_sign_ins` returns True for servers that require a sign-in and have no account, and None for those that do
        not respond.
        """
        self._clients = clients
        self._servers_file = servers_file
        self._files = files
        self._installations = installations
        self._with = surroundings
        self._find_sign_ins = find_sign_ins
        self._made: dict[Path, bytes] = {}
        self._entries: dict[ConfigLocation, str] = {}

    def plans(self, clients: Collection[str], project: Path | None) -> tuple[InstallPlan, ...]:
        """One plan for each place that has servers, of these clients, or of all when none is named."""
        places = self._clients.places(project)
        plans = [self._plan(place) for place in places if not clients or place.client in clients]
        return tuple(plan for plan in plans if plan.fault or plan.moves or plan.stays or plan.changes)

    def preload_plans(self, configurations: Collection[Path], *, is_on: bool) -> tuple[InstallPlan, ...]:
        """One plan for each file to change so that clients with one of these configurations load riglm's tools at once.

        Only some clients defer tools. Without `is_on`, what was changed for that is taken back.
        """
        resolved = {file.resolve() for file in configurations}
        made = [each for each in self._installations.all() if each.configuration.resolve() in resolved]
        newest = {each.place: each for each in made if is_on or self._turned_preloading_on(each)}
        plans = [self._preload_plan(each, is_on=is_on) for each in newest.values()]
        return tuple(plan for plan in plans if plan.fault or plan.changes)

    def _turned_preloading_on(self, made: ClientSetup) -> bool:
        if made.servers or (before := self._installations.kept(made.before)) is None:
            return False
        try:
            return self._clients.with_preloading(made.place, before, made.entry) != before
        except RiglmError:
            return False

    def _preload_plan(self, made: ClientSetup, *, is_on: bool) -> InstallPlan:
        """The plan for a place; without `is_on`, `made` is what was changed there by an earlier such plan."""
        place, configuration = made.place, made.configuration
        plan = InstallPlan(place=place, configuration=configuration, entry=made.entry, command=made.command)
        try:
            content, ours = self._content(place.file) or b"", self._content(configuration)
            entry = entry_of(self._clients.servers(place, content), configuration)
            if is_on and entry is None:
                return plan
            entry = entry or made.entry
            if is_on:
                after = self._clients.with_preloading(place, content, entry)
            else:
                before = self._installations.kept(made.before) or content
                is_as_written = digest(content) == made.after
                entries = [made.entry, entry]
                after = before if is_as_written else self._clients.without_preloading(place, content, entries, before)
        except RiglmError as error:
            return replace(plan, fault=str(error))
        changes = (
            FileChange(file=configuration, before=ours, after=ours),  # the journal is about both files
            FileChange(file=place.file, before=content, after=after),
        )
        return replace(plan, entry=entry, rewritings=changes)

    def _plan(self, place: ConfigLocation) -> InstallPlan:
        configuration = self._with.directory / f"{place.key}.yaml"
        try:
            plan = self._worked_out(place, configuration)
        except RiglmError as error:
            return InstallPlan(place=place, configuration=configuration, fault=str(error))
        if plan.changes:
            self._entries[place] = plan.entry
        for rewriting in plan.rewritings:
            if rewriting.after is not None:
                self._made[rewriting.file] = rewriting.after
        return plan

    def _worked_out(self, place: ConfigLocation, configuration: Path) -> InstallPlan:
        content = self._content(place.file) or b""
        servers = self._clients.servers(place, content)
        ours = self._content(configuration)
        behind = dict(self._servers_file.servers(configuration, ours))
        starts = (*self._with.command, "run", "--config", str(configuration))
        there = entry_of(servers, configuration)
        if there is not None and ours is None:
            raise self._lost(place, configuration, there)
        is_there = there is not None
        entry = self._entry_for(place, servers) if there is None else there
        moves, stays, added = self._sorted(place, servers, behind, there)
        sign_ins = self._require_sign_ins(place, servers, moves, stays, added)
        moved = [server for server in servers if any(move.name == server.name for move in moves)]
        variables = tuple(dict.fromkeys(name for server in moved for name in server.variables))
        client_after, ours_after = content, ours
        if moves or is_there:
            client_after = self._clients.with_riglm(
                place,
                content,
                [move.name for move in moves],
                entry=entry,
                starts=starts,
                variables=variables,
                env=self._with.env,
                waits=_longest(moved),
            )
        if added:
            ours_after = self._servers_file.with_servers(ours, added, _head(place))
        return InstallPlan(
            place=place,
            configuration=configuration,
            entry=entry,
            command=starts,
            moves=tuple(moves),
            stays=tuple(stays),
            sign_ins=sign_ins,
            notes=(
                *self._notes(place, moves, variables),
                *self._clients.remarks(place, [move.name for move in moves], entry),
            ),
            rewritings=(FileChange(file=configuration, before=ours, after=ours_after),
                        FileChange(file=place.file, before=content, after=client_after)),
        )  # fmt: skip

    def _lost(self, place: ConfigLocation, configuration: Path, entry: str) -> RiglmError:
        """What to say where a client starts riglm with a configuration that is not there any more."""
        fix = f"take {entry!r} out of it and write the servers there again by hand"
        if any(each.place == place for each in self._installations.all()):
            of_project = f" --project {shlex.quote(str(place.project))}" if place.project is not None else ""
            fix = f"`riglm undo --client {place.client}{of_project}` puts them back from its copy, then run this again"
        what = f"{configuration}, where riglm has the servers of {place.file}, is missing"
        return RiglmError(f"{what} — fix: {fix}")

    def _sorted(
        self, place: ConfigLocation, servers: Sequence[ClientServer], behind: Mapping[str, object], entry: str | None
    ) -> tuple[list[MovedServer], list[SkippedServer], dict[str, Mapping[str, object]]]:
        """What goes behind riglm, what stays, and the definitions that riglm's configuration lacks."""
        moves: list[MovedServer] = []
        stays: list[SkippedServer] = []
        added: dict[str, Mapping[str, object]] = {}
        names = names_behind(each.name for each in servers if each.definition is not None and not is_riglm(each))
        for server in servers:
            if server.name == entry:
                continue
            if why := self._obstacle(server, names.get(server.name, ""), behind, place.project):
                stays.append(SkippedServer(name=server.name, why=why))
                continue
            name = names[server.name]
            if name not in behind:
                added[name] = dict(server.definition or {})
            moves.append(MovedServer(name=server.name, behind=name, unused=server.unused))
        return moves, stays, added

    def _require_sign_ins(
        self,
        place: ConfigLocation,
        servers: Sequence[ClientServer],
        moves: list[MovedServer],
        stays: list[SkippedServer],
        added: dict[str, Mapping[str, object]],
    ) -> "dict[str, ServerSettings]":
        """Let the servers stay that could not be used behind riglm; return those that a sign-in lets move.

        No server of a project gets the value of a variable in a request before the user has agreed.
        """
        by_name = {server.name: server for server in servers if server.signs_in}
        asked = {move.behind: move for move in moves if move.name in by_name and move.behind in added}
        settings = {name: self._servers_file.settings(name, added[name]) for name in asked}
        safe = {
            name: each for name, each in settings.items()
            if place.project is None or not by_name[asked[name].name].variables
        }  # fmt: skip
        needs = {**dict.fromkeys(asked), **(self._find_sign_ins(safe) if safe else {})}
        for name, move in asked.items():
            if needs[name] is False or (needs[name] is None and _is_local(settings[name].url)):
                continue
            why = f"it requires a sign-in: `riglm login {name}`, then `riglm init` again"
            if needs[name] is None:
                why = "it may require a sign-in: riglm got no response from it; --include moves it anyway"
            stays.append(SkippedServer(name=move.name, why=why))
            moves.remove(move)
            del added[name]
        return {name: settings[name] for name in asked if needs[name]}

    def _obstacle(self, server: ClientServer, name: str, behind: Mapping[str, object], directory: Path | None) -> str:
        if is_riglm(server):
            return "it is riglm already"
        if server.definition is None:
            return server.obstacle
        if behind.get(name, server.definition) != server.definition:
            return "a server of this name is behind riglm already, with another definition: remove one of the two"
        return self._servers_file.fault(name, server.definition, directory)

    def _notes(self, place: ConfigLocation, moves: Sequence[MovedServer], variables: Sequence[str]) -> list[str]:
        unset = [name for name in variables if name not in self._with.environment]
        unused = [f"{move.name}: {', '.join(move.unused)}" for move in moves if move.unused]
        notes = []
        if unset:
            notes.append(
                f"not set in this shell, so empty for the servers unless the client sets it: {', '.join(unset)}"
            )
        if unused:
            notes.append(f"means nothing to riglm, and waits in the backup — {'; '.join(unused)}")
        if moves and place.project is not None and place.path[0] != "projects":
            notes.append(
                f"{place.file.name} may be shared with others, and would name riglm by where it is on this machine"
            )
        return notes

    def _entry_for(self, place: ConfigLocation, servers: Sequence[ClientServer]) -> str:
        """A name for riglm's entry that no server has which the client puts together with those of this place."""
        known = {each.place: each.entry for each in self._installations.all()} | self._entries
        names = {server.name for server in servers}
        names |= {entry for other, entry in known.items() if other != place and place.is_read_with(other)}
        free = (f"{place.entry}-{number}" if number > 1 else place.entry for number in range(1, len(names) + 2))
        return next(name for name in free if name not in names)

    def _content(self, file: Path) -> bytes | None:
        return self._made[file] if file in self._made else self._files.read(file)


def _is_local(url: str) -> bool:
    return is_loopback(urlsplit(url).hostname or "")


def _longest(servers: Sequence[ClientServer]) -> dict[str, float]:
    """How long the client waited for the slowest of these."""
    waits: dict[str, float] = {}
    for server in servers:
        for key, value in server.waits.items():
            waits[key] = max(value, waits.get(key, value))
    return waits


def _head(place: ConfigLocation) -> str:
    whose = f" in {place.project}" if place.project is not None else ""
    return (
        f"# The servers of {place.client}{whose}, moved here by `riglm init`; `riglm undo` puts them back.\n"
        "# In shadow mode riglm shows everything and records what it would hide: see `riglm report`, `riglm enforce`.\n"
    )


class SetupInstaller:
    """Writes plans down."""

    def __init__(
        self, *, files: FilesPort, installations: InstallationsPort, clock: Callable[[], float] = time.time
    ) -> None:
        """The clock gives seconds since the epoch."""
        self._files = files
        self._installations = installations
        self._clock = clock

    def install_each(self, plans: Iterable[InstallPlan]) -> tuple[InstallPlan, ...]:
        """Install each of these independently; returns the plans, with a fault for each that failed."""
        return tuple(map(self._tried, plans))

    def _tried(self, plan: InstallPlan) -> InstallPlan:
        try:
            self.install(plan)
        except RiglmError as error:
            return replace(plan, fault=str(error))
        return plan

    def install(self, plan: InstallPlan) -> None:
        """Keep a copy, note the change, write riglm's configuration, and then the client's file.

        Raises:
            RiglmError: something cannot be written, or became another file meanwhile; nothing is changed then.
        """
        if not plan.changes:
            return
        configured, client = plan.rewritings
        is_ours = configured.before is None or digest_of_configuration(configured.before) == self._configured(plan)
        copy = self._installations.keep(plan.place, client.before or b"")
        installation = ClientSetup(
            place=plan.place,
            configuration=plan.configuration,
            entry=plan.entry,
            command=plan.command,
            servers={move.name: move.behind for move in plan.moves},
            before=copy,
            after=digest(client.after or b""),
            configured=digest_of_configuration(configured.after or b"") if is_ours else "",
            at=self._clock(),
        )
        try:
            self._installations.add(installation)
        except BaseException:
            self._installations.forget(copy)
            raise
        with ExitStack() as undone:  # in reverse order: on a full disk, a removed file frees space for the journal
            undone.callback(self._installations.drop, [installation])
            self._files.write(configured.file, configured.before, configured.after)
            undone.callback(self._files.write, configured.file, configured.after, configured.before)
            self._files.write(client.file, client.before, client.after)
            undone.pop_all()

    def _configured(self, plan: InstallPlan) -> str:
        """The digest of riglm's configuration as it was written last."""
        found = (each.configured for each in self._installations.all() if each.configuration == plan.configuration)
        return next(iter(deque(found, maxlen=1)), "")


class LeftoverCleanup:
    """Removes leftover temporary files from all directories that riglm writes to."""

    def __init__(
        self, *, clients: ClientsPort, files: FilesPort, installations: InstallationsPort, own: Iterable[Path]
    ) -> None:
        """`own` are the directories of riglm's files."""
        self._clients = clients
        self._files = files
        self._installations = installations
        self._own = tuple(own)

    def clear(self, project: Path | None) -> tuple[Path, ...]:
        """Remove what is surely riglm's and old, and nothing else; these files."""
        places = [*self._clients.places(None), *(self._clients.places(project) if project is not None else ())]
        files = [place.file for place in places]
        for each in self._installations.all():
            files += [each.file, each.configuration]
        directories = dict.fromkeys([*(file.resolve().parent for file in files), *self._own])
        return tuple(file for directory in directories for file in self._files.clear(directory))
