"""Whether the configuration can be used, and who else may read what is secret in it."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from riglm.application.examining.check import Check
from riglm.domain.finding import Finding, Section, Severity, finding
from riglm.ports.examining import FilesLookPort

_FIX: Final = " — fix: "
_finding: Final = partial(finding, Section.CONFIGURATION)


class UnusableConfiguration(Check):
    """Tells what is wrong with a configuration that could not be used, all of it."""

    sections = (Section.CONFIGURATION,)

    def __init__(self, problems: str) -> None:
        """`problems` are lines, each with the place, what is wrong, and the fix."""
        self._problems = problems

    async def examine(self) -> Sequence[Finding]:
        """A finding for each problem."""
        return [told(line, Severity.ERROR) for line in self._problems.splitlines()]


class ConfigurationCheck(Check):
    """Tells of a configuration that can be used: where it is, what is odd about it, whether its secrets are secret."""

    sections = (Section.CONFIGURATION,)

    def __init__(
        self,
        file: Path | None,
        servers: Sequence[str],
        notes: Sequence[str],
        files: FilesLookPort,
        secrets: Sequence[str],
    ) -> None:
        """`file` is None where there is none; `notes` are odd, `secrets` what must not stand in an open file."""
        self._file = file
        self._servers = servers
        self._notes = notes
        self._files = files
        self._secrets = secrets

    async def examine(self) -> Sequence[Finding]:
        """What is in use, and what is to be noted."""
        place = str(self._file) if self._file else "riglm.yaml"
        found = [_finding(*_in_use(place, self._servers, is_there=self._file is not None))]
        found += [told(note, Severity.WARNING) for note in self._notes]
        exposed = self._files.exposed(self._file) if self._file else None
        if exposed is not None and self._file is not None and self._holds_secrets(self._file):
            what = f"holds secrets, and other users of this machine may read it (mode {exposed.mode})"
            fix = f"chmod 600 {exposed.path}; better still, write ${{VARIABLE}} for each secret"
            found.append(_finding(Severity.WARNING, place, what, fix))
        return found

    def _holds_secrets(self, file: Path) -> bool:
        text = file.read_text("utf-8", "replace")
        return any(secret in text for secret in self._secrets)


def told(line: str, severity: Severity) -> Finding:
    """A problem as the configuration's readers word it: `PLACE: WHAT — fix: FIX`."""
    words, _, fix = line.partition(_FIX)
    place, colon, what = words.rpartition(": ")
    return _finding(severity, place, what, fix) if colon else _finding(severity, "riglm.yaml", words, fix)


def _in_use(place: str, servers: Sequence[str], *, is_there: bool) -> tuple[Severity, str, str, str]:
    what = "is in use" if is_there else "there is none: defaults and the environment are in use"
    if servers:
        return (Severity.OK if is_there else Severity.NOTE), place, f"{what}; servers: {', '.join(servers)}", ""
    fix = "run `riglm init`, or name another file with --config; nothing is to be done if clients name the server"
    return Severity.NOTE, place, f"{what}; it names no servers", fix
