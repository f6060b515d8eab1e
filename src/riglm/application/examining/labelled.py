"""Findings about one of several configurations."""

from collections.abc import Sequence
from dataclasses import replace

from riglm.application.examining.check import Check
from riglm.domain.finding import Finding


class Labelled(Check):
    """Puts a label before the place of all that another check finds."""

    def __init__(self, check: Check, label: str) -> None:
        """`label` says which configuration it is about."""
        self.sections = check.sections
        self._check = check
        self._label = label

    async def examine(self) -> Sequence[Finding]:
        """What the other check finds."""
        return [replace(each, place=f"{self._label}: {each.place}") for each in await self._check.examine()]
