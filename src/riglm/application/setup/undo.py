"""`riglm undo`: restores clients' files, or returns the servers to them, and removes riglm."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from riglm.application.setup.init import SetupContext
from riglm.domain.client_setup import ClientServer, ClientSetup, FileChange, UndoPlan, digest, entry_of, is_riglm
from riglm.domain.errors import RiglmError


@dataclass(frozen=True, slots=True)
class _Result:
    """The result for a file without one setup; `lost` are the servers that could not be restored."""

    content: bytes | None
    notes: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    is_exact: bool = True


def plan_undo(context: SetupContext, clients: Collection[str], project: Path | None) -> tuple[UndoPlan, ...]:
    """Return one plan for each file, of these clients or of all when none is named; of one project if one is named."""
    by_file: dict[Path, list[ClientSetup]] = {}
    for each in reversed(context.journal.all()):
        if (not clients or each.client in clients) and (project is None or each.place.project == project):
            by_file.setdefault(each.file, []).append(each)
    return tuple(_plan_file(context, file, found) for file, found in by_file.items())


def undo_each(context: SetupContext, plans: Iterable[UndoPlan]) -> tuple[UndoPlan, ...]:
    """Undo each of these independently; return the plans, with a fault for each that failed."""
    tried = []
    for plan in plans:
        try:
            undo(context, plan)
            tried.append(plan)
        except RiglmError as error:
            tried.append(replace(plan, fault=str(error)))
    return tuple(tried)


def undo(context: SetupContext, plan: UndoPlan) -> None:
    """Write the client's file, then remove riglm's configurations, then the setup journal entries.

    Raises:
        RiglmError: something cannot be written, or became another file meanwhile.
    """
    for rewriting in plan.rewritings:
        context.write(rewriting.file, rewriting.before, rewriting.after)
    context.journal.drop(plan.installations)


def _plan_file(context: SetupContext, file: Path, setups: Sequence[ClientSetup]) -> UndoPlan:
    plan = UndoPlan(client=setups[0].client, file=file, installations=tuple(setups))
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
        rewritings=(FileChange(file=file, before=now, after=content), *of_riglm),
    )


def _without(context: SetupContext, setup: ClientSetup, content: bytes | None) -> _Result:
    """Return the file without one setup, and the notes about it."""
    before = context.journal.kept(setup.before)
    if content is not None and before == content:
        return _Result(content)
    if before is None:
        raise RiglmError(
            f"the previous copy of {setup.file} is missing — fix: remove riglm's entry "
            f"{setup.entry!r} from it, and add the servers in {setup.configuration}"
        )
    if content is None or not content.strip() or digest(content) == setup.after:
        return _Result(before)
    try:
        return _changed(context, setup, content, before)
    except RiglmError as error:
        raise RiglmError(f"{error}; what it was before riglm is in {context.journal.where(setup.before)}") from None


def _changed(context: SetupContext, setup: ClientSetup, content: bytes, before: bytes) -> _Result:
    """Return the same of a file that was changed since: the changes stay."""
    clients, place = context.clients, setup.place
    there = {server.name: server for server in clients.servers(place, content)}
    entry = entry_of(there.values(), setup.configuration)
    if not setup.servers:  # `riglm enforce` changed riglm's entry
        try:
            entries = [setup.entry, entry or setup.entry]
            return _Result(clients.without_preloading(place, content, entries, before), is_exact=False)
        except RiglmError as error:
            return _Result(content, [str(error)], is_exact=False)
    if entry is None and setup.entry in there and is_riglm(there[setup.entry]):
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


def _identity(server: ClientServer | None) -> object:
    """Return what distinguishes a server from a different one of its name."""
    return server and (server.definition, server.starts, server.url)


def _configurations(
    context: SetupContext, setups: Sequence[ClientSetup], lost: Mapping[Path, Collection[str]]
) -> tuple[list[FileChange], list[str]]:
    """Plan what happens to riglm's files: a file with content that no other file has is kept under another name."""
    newest = {each.configuration: each for each in reversed(setups)}
    rewritings, notes = [], []
    for file, setup in newest.items():
        content = context.read(file)
        names = sorted(lost.get(file, ()))
        if content is None:
            notes += [f"{file} is missing, and with it {', '.join(names)}"] if names else []
            continue
        is_changed = digest(content) != setup.configured
        if is_changed or names:
            free = (file.with_name(f"{file.stem}.undone{number or ''}.yaml") for number in count())
            aside = next(name for name in free if context.read(name) is None)
            rewritings.append(FileChange(file=aside, before=None, after=content))
            if is_changed:
                notes.append(f"you changed {file} since: it is kept as {aside.name}")
                moved = {name for each in setups if each.configuration == file for name in each.servers.values()}
                added = [name for name in context.read_servers(file, content) if name not in moved]
                notes += [f"only riglm knew {', '.join(added)}: not put into the client's file"] if added else []
            if names:
                notes.append(f"not put back, and kept in {aside}: {', '.join(names)}")
        rewritings.append(FileChange(file=file, before=content, after=None))
    return rewritings, notes
