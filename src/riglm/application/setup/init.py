"""`riglm init`: the servers of clients move behind riglm. All is planned before anything is written."""

import shlex
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from riglm.application.setup.client_entries import add_servers, read_servers
from riglm.application.setup.undo import Definitions, SetupContext
from riglm.domain.access import is_loopback
from riglm.domain.client_setup import (
    ClientServer,
    ClientSetup,
    ConfigLocation,
    FileChange,
    InstallPlan,
    MovedServer,
    digest,
    entry_of,
    is_riglm,
    names_behind,
)
from riglm.domain.errors import RiglmError

if TYPE_CHECKING:
    from riglm.domain.schemas.server import ServerSettings


class SetupPlanner:
    """Plans place after place; what an earlier plan makes of a file, a later one starts from."""

    def __init__(self, context: SetupContext) -> None:
        self._context = context
        self._made: dict[Path, bytes] = {}
        self._entries: dict[ConfigLocation, str] = {}

    def plans(self, clients: Collection[str], project: Path | None) -> tuple[InstallPlan, ...]:
        """Return one plan for each place that has servers, of these clients, or of all when none is named."""
        places = self._context.clients.places(project)
        plans = [self._plan(place) for place in places if not clients or place.client in clients]
        return tuple(plan for plan in plans if plan.fault or plan.moves or plan.stays or plan.changes)

    def preload_plans(self, configurations: Collection[Path], *, is_on: bool) -> tuple[InstallPlan, ...]:
        """Return one plan for each file to change so that clients with these configurations load riglm's tools at once.

        Only some clients defer tools. Without `is_on`, what was changed for that is undone.
        """
        resolved = {file.resolve() for file in configurations}
        made = [each for each in self._context.journal.all() if each.configuration.resolve() in resolved]
        newest = {each.place: each for each in made if is_on or self._turned_preloading_on(each)}
        plans = [self._preload_plan(each, is_on=is_on) for each in newest.values()]
        return tuple(plan for plan in plans if plan.fault or plan.changes)

    def _turned_preloading_on(self, made: ClientSetup) -> bool:
        if made.servers or (before := self._context.journal.kept(made.before)) is None:
            return False
        try:
            return self._context.clients.with_preloading(made.place, before, made.entry) != before
        except RiglmError:
            return False

    def _preload_plan(self, made: ClientSetup, *, is_on: bool) -> InstallPlan:
        """Return the plan for a place; without `is_on`, `made` is what was changed there by an earlier such plan."""
        clients, place, configuration = self._context.clients, made.place, made.configuration
        plan = InstallPlan(place=place, configuration=configuration, entry=made.entry, command=made.command)
        try:
            content, ours = self._content(place.file) or b"", self._content(configuration)
            entry = entry_of(clients.servers(place, content), configuration)
            if is_on and entry is None:
                return plan
            entry = entry or made.entry
            if is_on:
                after = clients.with_preloading(place, content, entry)
            else:
                after = before = self._context.journal.kept(made.before) or content
                if digest(content) != made.after:
                    after = clients.without_preloading(place, content, [made.entry, entry], before)
        except RiglmError as error:
            return replace(plan, fault=str(error))
        changes = (
            FileChange(file=configuration, before=ours, after=ours),  # the journal is about both files
            FileChange(file=place.file, before=content, after=after),
        )
        return replace(plan, entry=entry, rewritings=changes)

    def _plan(self, place: ConfigLocation) -> InstallPlan:
        configuration = self._context.directory / f"{place.key}.yaml"
        try:
            plan = self._plan_moves(place, configuration)
        except RiglmError as error:
            return InstallPlan(place=place, configuration=configuration, fault=str(error))
        if plan.changes:
            self._entries[place] = plan.entry
        self._made |= {each.file: each.after for each in plan.rewritings if each.after is not None}
        return plan

    def _plan_moves(self, place: ConfigLocation, configuration: Path) -> InstallPlan:
        context = self._context
        content, ours = self._content(place.file) or b"", self._content(configuration)
        servers = context.clients.servers(place, content)
        there = entry_of(servers, configuration)
        if there is not None and ours is None:
            raise self._lost(place, configuration, there)
        entry = there or self._entry_for(place, servers)
        moves, stays, added, sign_ins = self._sort(place, servers, read_servers(configuration, ours), there)
        moved = [server for server in servers if any(move.name == server.name for move in moves)]
        variables = tuple(dict.fromkeys(name for server in moved for name in server.variables))
        starts = (*context.command, "run", "--config", str(configuration))
        names, after = [move.name for move in moves], content
        if moves or there is not None:
            after = context.clients.with_riglm(
                place,
                content,
                names,
                entry=entry,
                starts=starts,
                variables=variables,
                env=context.env,
                waits=_longest(moved),
            )
        ours_after = add_servers(ours, added, _head(place)) if added else ours
        return InstallPlan(
            place=place,
            configuration=configuration,
            entry=entry,
            command=starts,
            moves=tuple(moves),
            stays=stays,
            sign_ins=sign_ins,
            notes=(*self._notes(place, moves, variables), *context.clients.remarks(place, names, entry)),
            rewritings=(
                FileChange(file=configuration, before=ours, after=ours_after),
                FileChange(file=place.file, before=content, after=after),
            ),
        )

    def _lost(self, place: ConfigLocation, configuration: Path, entry: str) -> RiglmError:
        """Return the error for a client that starts riglm with a configuration that is not there any more."""
        fix = f"take {entry!r} out of it and write the servers there again by hand"
        if any(each.place == place for each in self._context.journal.all()):
            of_project = f" --project {shlex.quote(str(place.project))}" if place.project is not None else ""
            fix = f"`riglm undo --client {place.client}{of_project}` puts them back from its copy, then run this again"
        what = f"{configuration}, where riglm has the servers of {place.file}, is missing"
        return RiglmError(f"{what} — fix: {fix}")

    def _sort(
        self, place: ConfigLocation, servers: Sequence[ClientServer], behind: Definitions, entry: str | None
    ) -> "tuple[list[MovedServer], dict[str, str], Definitions, dict[str, ServerSettings]]":
        """Return what goes behind riglm, what stays, what riglm's configuration lacks, and what a sign-in lets move."""
        names = names_behind(each.name for each in servers if each.definition is not None and not is_riglm(each))
        moves: list[MovedServer] = []
        stays: dict[str, str] = {}
        added: dict[str, Mapping[str, Any]] = {}
        asked: dict[str, tuple[ClientServer, ServerSettings]] = {}
        for server in servers:
            if server.name == entry:
                continue
            name = names.get(server.name, "")
            try:
                settings = self._require_movable(server, name, behind, place.project)
            except RiglmError as error:
                stays[server.name] = str(error)
                continue
            moves.append(MovedServer(name=server.name, behind=name, unused=server.unused))
            if name not in behind:
                added[name] = dict(server.definition or {})
                if server.signs_in:
                    asked[name] = (server, settings)
        sign_ins = {}
        for name, why in self._sign_in_obstacles(place, asked).items():
            server, settings = asked[name]
            stays[server.name] = why
            del added[name]
            if "riglm login" in why:
                sign_ins[name] = settings
        return [move for move in moves if move.name not in stays], stays, added, sign_ins

    def _require_movable(
        self, server: ClientServer, name: str, behind: Definitions, directory: Path | None
    ) -> "ServerSettings":
        """Return the settings of a server behind riglm; raise RiglmError with the reason for one that must stay."""
        if is_riglm(server):
            raise RiglmError("it is riglm already")
        if server.definition is None:
            raise RiglmError(server.obstacle)
        if behind.get(name, server.definition) != server.definition:
            raise RiglmError(
                "a server of this name is behind riglm already, with another definition: remove one of the two"
            )
        return self._context.load_server(name, server.definition, directory)

    def _sign_in_obstacles(
        self, place: ConfigLocation, asked: "Mapping[str, tuple[ClientServer, ServerSettings]]"
    ) -> dict[str, str]:
        """Return why servers could not be used behind riglm before a sign-in, by their names there.

        No server of a project gets the value of a variable in a request before the user has agreed.
        """
        safe = {
            name: settings
            for name, (server, settings) in asked.items()
            if place.project is None or not server.variables
        }
        needs = {**dict.fromkeys(asked), **(self._context.find_sign_ins(safe) if safe else {})}
        found = {}
        for name, (_, settings) in asked.items():
            if needs[name]:
                found[name] = f"it requires a sign-in: `riglm login {name}`, then `riglm init` again"
            elif needs[name] is None and not is_loopback(urlsplit(settings.url).hostname or ""):
                found[name] = "it may require a sign-in: riglm got no response from it; --include moves it anyway"
        return found

    def _notes(self, place: ConfigLocation, moves: Sequence[MovedServer], variables: Sequence[str]) -> list[str]:
        unset = [name for name in variables if name not in self._context.environment]
        unused = [f"{move.name}: {', '.join(move.unused)}" for move in moves if move.unused]
        shared = moves and place.project is not None and place.path[0] != "projects"
        notes = {
            f"not set in this shell, so empty for the servers unless the client sets it: {', '.join(unset)}": unset,
            f"means nothing to riglm, and waits in the backup — {'; '.join(unused)}": unused,
            f"{place.file.name} may be shared with others, and would name riglm by where it is on this machine": shared,
        }
        return [note for note, reason in notes.items() if reason]

    def _entry_for(self, place: ConfigLocation, servers: Sequence[ClientServer]) -> str:
        """Return a name for riglm's entry that no server has which the client merges with those of this place."""
        known = {each.place: each.entry for each in self._context.journal.all()} | self._entries
        names = {server.name for server in servers}
        names |= {entry for other, entry in known.items() if other != place and place.is_read_with(other)}
        free = (f"{place.entry}-{number}" if number > 1 else place.entry for number in range(1, len(names) + 2))
        return next(name for name in free if name not in names)

    def _content(self, file: Path) -> bytes | None:
        return self._made[file] if file in self._made else self._context.read(file)


def _longest(servers: Sequence[ClientServer]) -> dict[str, float]:
    """Return the timeouts by which the client waited for the slowest of these servers."""
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


def install(context: SetupContext, plan: InstallPlan) -> None:
    """Keep a copy, note the change, write riglm's configuration, and then the client's file.

    Raises:
        RiglmError: something cannot be written, or became another file meanwhile; nothing is changed then.
    """
    if not plan.changes:
        return
    configured, client = plan.rewritings
    journal = context.journal
    written = [each.configured for each in journal.all() if each.configuration == plan.configuration]
    is_ours = configured.before is None or written[-1:] == [digest(configured.before)]
    setup = ClientSetup(
        place=plan.place,
        configuration=plan.configuration,
        entry=plan.entry,
        command=plan.command,
        servers={move.name: move.behind for move in plan.moves},
        before=journal.keep(plan.place, client.before or b""),
        after=digest(client.after or b""),
        configured=digest(configured.after or b"") if is_ours else "",
        at=time.time(),
    )
    with ExitStack() as undone:  # in reverse order: on a full disk, a removed file frees space for the journal
        undone.callback(journal.forget, setup.before)
        journal.add(setup)
        undone.pop_all()
        undone.callback(journal.drop, [setup])
        context.write(configured.file, configured.before, configured.after)
        undone.callback(context.write, configured.file, configured.after, configured.before)
        context.write(client.file, client.before, client.after)
        undone.pop_all()
