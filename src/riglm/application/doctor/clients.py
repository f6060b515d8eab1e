"""What clients get of riglm, and whether they still start it."""

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Final

from riglm.application.doctor.check import Check, SharedProbe, aside
from riglm.domain.client_setup import ClientSetup, RiglmServerEntry
from riglm.domain.client_support import ChosenSurface, ClientBehavior, choose_surface, support_of
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.domain.exposure import Surface
from riglm.domain.finding import DoctorSection, Finding, Severity, finding
from riglm.domain.redaction import RUNNERS, mask_address
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.session import ProtocolEra
from riglm.ports.doctor import FileInspectorPort, ProgramsPort, RecordedClient, StoreStatus

_finding: Final = partial(finding, DoctorSection.CLIENTS)


class ClientsSeenCheck(Check):
    """Reports for each recorded client which surface it gets, and how it handles a list that changes."""

    sections = (DoctorSection.CLIENTS,)

    def __init__(
        self,
        store: SharedProbe[StoreStatus],
        filtering: FilteringSettings,
        by_client: Mapping[str, FilteringSettings] = MappingProxyType({}),
    ) -> None:
        """`by_client` are the rules of clients with a separate riglm process, by the names that `riglm init` uses."""
        self._store = store
        self._filtering = filtering
        self._by_client = by_client

    async def examine(self) -> Sequence[Finding]:
        try:
            facts = await self._store.facts()
        except AnalyticsUnavailableError:
            return []  # reported by the store check
        return [self._told(client) for client in facts.clients]

    def _told(self, client: RecordedClient) -> Finding:
        name = client.name or "a client without a name"
        known = support_of(client.name)
        rules = self._by_client.get(known.key, self._filtering) if known else self._filtering
        surface, reason, _ = _surface(client, rules)
        list_changed_support = known.list_changed_support.value if known else "is not known to riglm"
        version = client.version or "no version"
        what = (
            f"{version}, {client.era} era over {client.transport}, {client.sessions:,} sessions; "
            f"surface: {surface}, because {reason}; when the list changes it {list_changed_support}"
        )
        if surface is Surface.DYNAMIC and known is not None and not known.follows_changes:
            return _finding(Severity.WARNING, name, what, f"set `filtering.clients: {{{_pattern(known)}: stable}}`")
        if surface is Surface.DYNAMIC and known is None:
            fix = "if new tools do not reach it, set `filtering.clients: {NAME: stable}`"
            return _finding(Severity.NOTE, name, what, fix)
        return _finding(Severity.OK, name, what)


class ClientFilesCheck(Check):
    """Looks whether clients' files still start riglm, and whether it is this one."""

    sections = (DoctorSection.CLIENTS,)

    def __init__(
        self,
        entries: Callable[[], Sequence[RiglmServerEntry]],
        installed: Sequence[ClientSetup],
        files: FileInspectorPort,
        programs: ProgramsPort,
        *,
        version: str,
        enforced: Collection[Path | None] = (),
    ) -> None:
        """`entries` reads the files, `installed` are those that `riglm init` changed, `version` is this riglm's.

        `enforced` are the configurations in enforce mode, None the one of a riglm that is given none.
        """
        self._entries = entries
        self._installed = installed
        self._files = files
        self._programs = programs
        self._version = version
        self._enforced = enforced

    async def examine(self) -> Sequence[Finding]:
        return await aside(self._look)

    def _look(self) -> list[Finding]:
        entries = self._entries()
        told = [self._told(each) for each in entries]
        there = {each.file for each in entries if not each.fault}
        gone = [each for each in self._installed if each.file not in there]
        what = "it does not start riglm any more: its file was changed"
        told += [_finding(Severity.WARNING, _place(each), what, self._whole(each)) for each in gone]
        if told:
            return told
        what = "none that is known on this machine starts riglm"
        return [_finding(Severity.NOTE, "files", what, "riglm init --dry-run shows what it would do")]

    def _told(self, each: RiglmServerEntry) -> Finding:
        if each.fault:
            return _finding(Severity.WARNING, _place(each), each.fault, "correct the file")
        if not each.command:
            return _finding(Severity.OK, _place(each), f"reaches riglm at {mask_address(each.url)}")
        program, configuration = each.command[0], _configuration(each.command)
        if self._programs.found(program) is None:
            what = f"it starts {program}, which is not there"
            return _finding(Severity.ERROR, _place(each), what, self._anew(each))
        if configuration is not None and not self._files.is_file(configuration):
            what = f"it starts riglm with {configuration}, which is not there or cannot be read"
            made = self._installation(each)
            fix = self._whole(made) if made is not None else "correct its command in the file"
            return _finding(Severity.ERROR, _place(each), what, fix)
        found = self._of_version(each, program)
        if found.severity is Severity.OK and each.may_defer and configuration in self._enforced:
            what = f"{found.what}, and may keep riglm's short list from the model until that searches for tools"
            has_fix = self._installation(each) is not None
            fix = "riglm enforce" if has_fix else "docs/how-to/clients.md names the setting that loads them at once"
            return _finding(Severity.WARNING, _place(each), what, fix)
        return found

    def _of_version(self, each: RiglmServerEntry, program: str) -> Finding:
        if not _is_riglm_itself(each.command):
            return _finding(Severity.OK, _place(each), f"starts riglm by {program}")
        release = self._programs.version_of_riglm(each.command)
        if release is None:
            what = f"it starts {program}, which does not identify itself as riglm"
            return _finding(
                Severity.ERROR, _place(each), what, f"see what `{program} --version` says; {self._anew(each)}"
            )
        if release != self._version:
            what = f"it starts riglm {release} at {program}, and this one is {self._version}"
            return _finding(Severity.WARNING, _place(each), what, self._anew(each))
        return _finding(Severity.OK, _place(each), f"starts riglm {release} at {program}")

    def _installation(self, each: RiglmServerEntry) -> ClientSetup | None:
        """The work of `riglm init` that an entry is, if it is any's."""
        return next((one for one in self._installed if str(one.configuration) in each.command), None)

    def _anew(self, each: RiglmServerEntry) -> str:
        """What makes an entry start this riglm."""
        made = self._installation(each)
        return _init(made) if made is not None else "correct its command in the file"

    def _whole(self, made: ClientSetup) -> str:
        """What sets up again what is not whole any more: the undoing takes all places of a client, or of a project."""
        project = made.place.project
        undone = [
            each
            for each in self._installed
            if each.client == made.client and (project is None or each.place.project == project)
        ]
        again = dict.fromkeys(_init(each) for each in undone)
        return f"riglm undo{_which(made)}, then, to have riglm there again, {' and '.join(again)}"


def _place(each: RiglmServerEntry | ClientSetup) -> str:
    return f"{each.client} {each.file}"


def _init(made: ClientSetup) -> str:
    return f"riglm init{_which(made)}"


def _which(made: ClientSetup) -> str:
    of_project = f" --project {shlex.quote(str(made.place.project))}" if made.place.project is not None else ""
    return f" --client {made.client}{of_project}"


def _configuration(command: Sequence[str]) -> Path | None:
    """The file that `--config` names, if it is named by its whole path."""
    words = list(command)
    named = next((after for word, after in pairwise(words) if word == "--config"), None)
    path = Path(named) if named else None
    return path if path is not None and path.is_absolute() else None


def _is_riglm_itself(command: Sequence[str]) -> bool:
    """Whether it can be asked for its version at once; what a runner like uvx would download is left alone."""
    return RUNNERS.fullmatch(Path(command[0]).name) is None or "-m" in command


def _pattern(known: ClientBehavior) -> str:
    return f'"{known.names[0]}"'


def _surface(client: RecordedClient, rules: FilteringSettings) -> ChosenSurface:
    if not rules.is_on or rules.strategy == "none" or rules.mode == "shadow":
        return ChosenSurface(Surface.FULL, "no list is filtered")
    era = ProtocolEra.MODERN if client.era == ProtocolEra.MODERN else ProtocolEra.HANDSHAKE
    return choose_surface(client.name, era, rules.clients, client.no_tool_search, rules.surface)
