"""Checks of clients: what they get of riglm, and whether they still start it."""

import shlex
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Final

from riglm.domain.client_setup import ClientSetup, RiglmServerEntry
from riglm.domain.client_support import ChosenSurface, choose_surface, support_of
from riglm.domain.exposure import Surface
from riglm.domain.finding import DoctorSection, Finding, Severity
from riglm.domain.redaction import RUNNERS, mask_address
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.session import ProtocolEra
from riglm.domain.store_status import RecordedClient

_finding: Final = partial(Finding, DoctorSection.CLIENTS)
_BY_HAND: Final = "correct its command in the file"


def check_recorded_client(
    client: RecordedClient,
    filtering: FilteringSettings,
    by_client: Mapping[str, FilteringSettings] = MappingProxyType({}),
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
    if surface is Surface.DYNAMIC and known is None:
        return _finding(
            Severity.NOTE, name, what, "if new tools do not reach it, set `filtering.clients: {NAME: stable}`"
        )
    if surface is Surface.DYNAMIC and known is not None and not known.follows_changes:
        return _finding(Severity.WARNING, name, what, f'set `filtering.clients: {{"{known.names[0]}": stable}}`')
    return _finding(Severity.OK, name, what)


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
        setup = next((each for each in setups if str(each.configuration) in entry.command), None)
        found = _check_entry(entry, setup, setups, version_of, version)
        if found.severity is Severity.OK and entry.may_defer and _configuration(entry.command) in enforced:
            what = f"{found.what}, and may keep riglm's short list from the model until that searches for tools"
            fix = "riglm enforce" if setup else "docs/how-to/clients.md names the setting that loads them at once"
            found = _finding(Severity.WARNING, found.place, what, fix)
        yield found
    there = {each.file for each in entries if not each.fault}
    changed = [each for each in setups if each.file not in there]
    for each in changed:
        what = "it does not start riglm any more: its file was changed"
        yield _finding(Severity.WARNING, f"{each.client} {each.file}", what, _set_up_again(each, setups))
    if not entries and not changed:
        what = "none that is known on this machine starts riglm"
        yield _finding(Severity.NOTE, "files", what, "riglm init --dry-run shows what it would do")


def _check_entry(
    entry: RiglmServerEntry,
    setup: ClientSetup | None,
    setups: Sequence[ClientSetup],
    version_of: Callable[[Sequence[str]], str | None],
    version: str,
) -> Finding:
    place = f"{entry.client} {entry.file}"
    if entry.fault:
        return _finding(Severity.WARNING, place, entry.fault, "correct the file")
    if not entry.command:
        return _finding(Severity.OK, place, f"reaches riglm at {mask_address(entry.url)}")
    program, configuration = entry.command[0], _configuration(entry.command)
    fix = f"riglm init{_options(setup)}" if setup else _BY_HAND
    if shutil.which(program) is None:
        return _finding(Severity.ERROR, place, f"it starts {program}, which is not there", fix)
    if configuration is not None and not configuration.is_file():
        what = f"it starts riglm with {configuration}, which is not there"
        return _finding(Severity.ERROR, place, what, _set_up_again(setup, setups) if setup else _BY_HAND)
    return _check_version(entry, place, fix, version_of, version)


def _check_version(
    entry: RiglmServerEntry, place: str, fix: str, version_of: Callable[[Sequence[str]], str | None], version: str
) -> Finding:
    program = entry.command[0]
    if RUNNERS.fullmatch(Path(program).name) and "-m" not in entry.command:
        return _finding(Severity.OK, place, f"starts riglm by {program}")  # uvx might download it to ask for a version
    release = version_of(entry.command)
    if release is None:
        what = f"it starts {program}, which does not identify itself as riglm"
        return _finding(Severity.ERROR, place, what, f"see what `{program} --version` says; {fix}")
    if release != version:
        what = f"it starts riglm {release} at {program}, and this one is {version}"
        return _finding(Severity.WARNING, place, what, fix)
    return _finding(Severity.OK, place, f"starts riglm {release} at {program}")


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
