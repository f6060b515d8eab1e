"""Servers that are not visited: nobody wants it, or they could not be started anyway."""

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from riglm.application.examining.check import Check
from riglm.application.examining.failure import how_to_install
from riglm.domain.finding import Finding, Section, Severity, finding
from riglm.domain.upstream import UpstreamSpec

_finding: Final = partial(finding, Section.SERVERS)


class Missing(NamedTuple):
    """A server that cannot be started, why, and what to do; `is_program` says that its program was not found."""

    spec: UpstreamSpec
    what: str
    fix: str
    is_program: bool


class UnvisitedCheck(Check):
    """Tells of servers without starting them."""

    sections = (Section.SERVERS,)

    def __init__(self, missing: Sequence[Missing], left_alone: Sequence[UpstreamSpec]) -> None:
        """Those that cannot be started, and those that are left alone because that was asked for."""
        self._missing = missing
        self._left_alone = left_alone

    async def examine(self) -> Sequence[Finding]:
        """A finding for each."""
        broken = [_finding(Severity.ERROR, each.spec.name, each.what, _fix(each)) for each in self._missing]
        return [*broken, *(_finding(Severity.NOTE, spec.name, _words(spec)) for spec in self._left_alone)]


def _fix(missing: Missing) -> str:
    return how_to_install(missing.spec.command[0]) if missing.is_program else missing.fix


def _words(spec: UpstreamSpec) -> str:
    return "its program is there; it was not started" if spec.kind == "stdio" else f"{spec.place} was not asked"
