"""`riglm knowledge embed`: the vectors by which pieces are found."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from riglm.cli.knowledge_access import chosen_embedder, knowledge_settings, opened_knowledge
from riglm.cli.options import ConfigOption, JsonOption
from riglm.cli.output import print_json
from riglm.cli.progress import progress
from riglm.domain.errors import RiglmError

if TYPE_CHECKING:
    from riglm.domain.schemas.settings import Settings
    from riglm.ports.knowledge import KnowledgePort


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """How many pieces were given vectors of a model, and how many still wait for theirs, with the reason if any do."""

    model: str
    given: int
    waiting: int
    reason: str = ""

    def require_all(self) -> None:
        """Raise `RiglmError` if pieces still wait."""
        if self.reason:
            raise RiglmError(
                f"{self.waiting} pieces cannot be found yet, since the embedder's model cannot be used "
                f"({self.reason}) — fix: see `riglm embedder status`, then run `riglm knowledge embed`"
            )


def embed(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Compute missing vectors for all owners: after an import that was interrupted, or with another model.

    An import does so by itself.
    """
    settings = knowledge_settings(config)
    with opened_knowledge(settings) as store:
        done = give_missing_vectors(settings, store)
    if as_json:
        print_json({"model": done.model, "embedded": done.given, "without_vector": done.waiting})
    else:
        typer.echo(f"{done.given} pieces were given vectors of {done.model}")
    done.require_all()


def give_missing_vectors(settings: "Settings", store: "KnowledgePort") -> Embedded:
    """Embed what lacks a vector of the current model, with a progress bar."""
    from riglm.application.knowledge.vectors import give_vectors
    from riglm.ports.embedder import EmbedderUnavailable

    given = 0
    with chosen_embedder(settings) as embedder:
        lacking = store.counts(None, embedder.model).without_vector
        with progress("embedding", lacking) as advance:

            def done(count: int) -> None:
                nonlocal given
                given += count
                advance(count)

            try:
                give_vectors(store, embedder, settings.embedder.batch, done)
            except EmbedderUnavailable as error:
                return Embedded(model=embedder.model, given=given, waiting=lacking - given, reason=str(error))
        return Embedded(model=embedder.model, given=given, waiting=0)
