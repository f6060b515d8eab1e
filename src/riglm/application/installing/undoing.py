"""`riglm undo`: clients' files become what they were, or say of servers what they said, and riglm is out of them."""

from collections.abc import Collection, Sequence
from itertools import count
from pathlib import Path

from riglm.domain.errors import RiglmError
from riglm.domain.installation import Installation, Rewriting, UndoPlan, digest, digest_of_configuration
from riglm.ports.clients import ClientsPort, FilesPort, InstallationsPort, ServersFilePort


class Undoer:
    """Plans and does what takes installations back, the newest first."""

    def __init__(
        self,
        *,
        clients: ClientsPort,
        servers_file: ServersFilePort,
        files: FilesPort,
        installations: InstallationsPort,
    ) -> None:
        """Nothing is read before the first plan."""
        self._clients = clients
        self._servers_file = servers_file
        self._files = files
        self._installations = installations

    def plans(self, clients: Collection[str], project: Path | None) -> tuple[UndoPlan, ...]:
        """One plan for each file, of these clients or of all when none is named; of one project if one is named."""
        by_file: dict[Path, list[Installation]] = {}
        for each in reversed(self._installations.all()):
            if (not clients or each.client in clients) and (project is None or each.place.project == project):
                by_file.setdefault(each.file, []).append(each)
        return tuple(self._plan(file, found) for file, found in by_file.items())

    def undo(self, plan: UndoPlan) -> None:
        """Write the client's file, then take riglm's configurations away, then forget.

        Raises:
            RiglmError: something cannot be written, or became another file meanwhile.
        """
        for rewriting in plan.rewritings:
            self._files.write(rewriting.file, rewriting.before, rewriting.after)
        self._installations.drop(plan.installations)

    def _plan(self, file: Path, installations: Sequence[Installation]) -> UndoPlan:
        client = installations[0].client
        try:
            now = self._files.read(file)
            content, is_exact, notes = now, True, list[str]()
            for each in installations:
                content, exactly, said = self._without(each, content)
                is_exact, notes = is_exact and exactly, notes + said
            of_riglm, more = self._configurations(installations)
        except RiglmError as error:
            return UndoPlan(client=client, file=file, installations=tuple(installations), fault=str(error))
        return UndoPlan(
            client=client,
            file=file,
            installations=tuple(installations),
            returns=tuple(dict.fromkeys(name for each in reversed(installations) for name in each.servers)),
            is_exact=is_exact,
            notes=tuple(notes + more),
            rewritings=(Rewriting(file=file, before=now, after=content), *of_riglm),
        )

    def _without(self, installation: Installation, content: bytes | None) -> tuple[bytes | None, bool, list[str]]:
        """The file without one installation, whether it is the one from before it to the byte, and what to say."""
        before = self._installations.kept(installation.before)
        if content is not None and before == content:
            return content, True, []
        if before is None:
            raise RiglmError(
                f"the copy of {installation.file} from before is gone — fix: take riglm's entry {installation.entry!r} "
                f"out of it by hand, and put back the servers that {installation.configuration} holds"
            )
        if content is None or digest(content) == installation.after:
            return before, True, []
        there = {server.name for server in self._clients.servers(installation.place, content)}
        returning = [name for name in installation.servers if name not in there]
        content = self._clients.without_riglm(installation.place, content, installation.entry, before, returning)
        notes = [
            f"{name}: is in the file again, and stays as it is there" for name in installation.servers if name in there
        ]
        return content, False, notes

    def _configurations(self, installations: Sequence[Installation]) -> tuple[list[Rewriting], list[str]]:
        """What becomes of riglm's own files: one that nobody changed goes, another one is kept under another name."""
        newest: dict[Path, Installation] = {}
        for each in installations:
            newest.setdefault(each.configuration, each)
        rewritings, notes = [], []
        for file, installation in newest.items():
            content = self._files.read(file)
            if content is None:
                continue
            if digest_of_configuration(content) != installation.configured:
                aside = self._free_name(file)
                rewritings.append(Rewriting(file=aside, before=None, after=content))
                notes.append(f"you changed {file} since: it is kept as {aside.name}")
                notes += self._added_by_hand(file, content, installations)
            rewritings.append(Rewriting(file=file, before=content, after=None))
        return rewritings, notes

    def _added_by_hand(self, file: Path, content: bytes, installations: Sequence[Installation]) -> list[str]:
        moved = {behind for each in installations if each.configuration == file for behind in each.servers.values()}
        added = [name for name in self._servers_file.servers(file, content) if name not in moved]
        return [f"only riglm knew {', '.join(added)}: not put into the client's file"] if added else []

    def _free_name(self, file: Path) -> Path:
        names = (file.with_name(f"{file.stem}.undone{number or ''}.yaml") for number in count())
        return next(name for name in names if self._files.read(name) is None)
