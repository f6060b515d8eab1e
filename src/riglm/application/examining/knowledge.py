"""Whether the inner voice has anything to say, where it is switched on."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from riglm.application.examining.check import Check
from riglm.application.examining.once import Once
from riglm.domain.errors import AnalyticsUnavailable
from riglm.domain.finding import Finding, Section, Severity, finding
from riglm.domain.schemas.knowledge import Knowledge
from riglm.ports.examining import StoreFacts

_finding: Final = partial(finding, Section.KNOWLEDGE)


class KnowledgeCheck(Check):
    """Looks what the knowledge store holds."""

    sections = (Section.KNOWLEDGE,)

    def __init__(self, settings: Knowledge, store: Once[StoreFacts]) -> None:
        """The store of the records holds the knowledge as well."""
        self._settings = settings
        self._store = store

    async def examine(self) -> Sequence[Finding]:
        """How much there is, and how much of it can be found."""
        if not self._settings.enabled:
            return [_finding(Severity.OK, "inner_voice.retrieve", "is off, as it is by default")]
        try:
            kept = (await self._store.facts()).knowledge
        except AnalyticsUnavailable:
            return [_finding(Severity.ERROR, "inner_voice.retrieve", "the store cannot be read", "see under store")]
        if kept is None or not kept.pieces:
            what = "is on, and there is nothing that it could find"
            return [_finding(Severity.WARNING, "inner_voice.retrieve", what, "riglm knowledge import FILE")]
        found = [_finding(Severity.OK, "inner_voice.retrieve", f"{kept.pieces:,} pieces of knowledge")]
        if kept.without_vector:
            what = f"{kept.without_vector:,} of {kept.pieces:,} pieces have no vector and are not found yet"
            found.append(_finding(Severity.WARNING, "vectors", what, "riglm knowledge embed"))
        return found
