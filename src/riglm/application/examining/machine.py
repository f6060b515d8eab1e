"""What riglm itself runs on."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from riglm.application.examining.check import Check
from riglm.domain.finding import Finding, Section, Severity, finding

_LEAST_PYTHON: Final = (3, 11)
_RELEASED: Final = 1_790_000_000.0
"""No clock that is right shows an earlier time: this riglm did not exist then."""
_finding: Final = partial(finding, Section.MACHINE)


class MachineCheck(Check):
    """Tells the versions, and whether the clock can be right."""

    sections = (Section.MACHINE,)

    def __init__(self, *, riglm: str, program: str, python: tuple[int, int, int], platform: str) -> None:
        """What runs: the version of riglm, the program that it was started as, and what is below it."""
        self._riglm = riglm
        self._program = program
        self._python = python
        self._platform = platform

    async def examine(self) -> Sequence[Finding]:
        """The versions and the clock."""
        python = ".".join(map(str, self._python))
        found = [_finding(Severity.OK, "riglm", f"{self._riglm}, started as {self._program}")]
        if self._python[:2] < _LEAST_PYTHON:
            found.append(_finding(Severity.ERROR, "Python", f"{python} is too old", "install Python 3.11 or newer"))
        else:
            found.append(_finding(Severity.OK, "Python", f"{python} on {self._platform}"))
        if time.time() < _RELEASED:
            what = "the clock is in the past: records would get times that are not theirs"
            found.append(_finding(Severity.ERROR, "clock", what, "set it, for example with `timedatectl set-ntp true`"))
        return found
