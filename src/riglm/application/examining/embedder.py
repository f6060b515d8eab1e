"""Whether the model that turns texts into vectors is the one that was asked for."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from riglm.application.examining.check import Check, aside
from riglm.domain.errors import RiglmError
from riglm.domain.finding import Finding, Section, Severity, finding
from riglm.ports.examining import EmbedderFacts

_finding: Final = partial(finding, Section.EMBEDDER)


class EmbedderCheck(Check):
    """Loads the model as `riglm run` does; no network is used."""

    sections = (Section.EMBEDDER,)

    def __init__(self, load: Callable[[], EmbedderFacts], *, is_used: bool) -> None:
        """`load` blocks until the model answered or is given up; without filtering and knowledge none is used."""
        self._load = load
        self._is_used = is_used

    async def examine(self) -> Sequence[Finding]:
        """Which model is at work, how long it takes, and why if it is another one."""
        if not self._is_used:
            return [_finding(Severity.NOTE, "model", "none is used: filtering and knowledge are both off")]
        try:
            facts = await aside(self._load)
        except RiglmError as error:
            words, _, fix = str(error).partition(" — fix: ")
            return [_finding(Severity.ERROR, "model", words, fix or "correct embedder.model")]
        speed = f"loaded in {facts.load_ms:.0f} ms, one text takes {facts.embed_ms:.1f} ms"
        if not facts.is_fallback and not facts.reason:
            return [_finding(Severity.OK, "model", f"{facts.at_work} {speed}")]
        quality = "" if facts.is_semantic else ", which knows words and no meaning"
        why = facts.reason.partition(" — fix: ")[0] or "it does not say why"
        what = f"{facts.wanted} cannot be used ({why}): {facts.at_work} stands in{quality}"
        fix = f"riglm embedder pull {facts.wanted}, or correct embedder.model"
        return [_finding(Severity.WARNING, "model", what, fix)]
