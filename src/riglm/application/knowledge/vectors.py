"""Gives pieces of knowledge the vectors that they lack."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar
from uuid import UUID

from riglm.domain.knowledge.pieces import Embedding
from riglm.domain.knowledge.provenance import Table
from riglm.domain.knowledge.wording import searched_text
from riglm.ports.embedder import EmbedderPort, EmbedderUnavailable
from riglm.ports.knowledge import KnowledgePort

_PIECES_AT_ONCE: Final = 512
_BATCHES_KEPT: Final = 8  # a store that is written to for every few texts takes longer than the model

_Item = TypeVar("_Item")


def give_vectors(store: KnowledgePort, embedder: EmbedderPort, batch: int, advance: Callable[[int], None]) -> None:
    """Embed everybody's pieces that have no vector of this model, `batch` texts at a time, telling `advance` how many.

    What was given stays when it ends early, and the next time goes on from there.

    Raises:
        EmbedderUnavailable: the model does not answer, or not any more, or became another.
        AnalyticsUnavailable: the store cannot be read or written.
    """
    embedder.embed(())  # says why if it can embed nothing
    model = embedder.model
    for table in Table:
        earlier: set[UUID] = set()
        while pieces := store.without_vector(table, model, _PIECES_AT_ONCE):
            ids = {piece.id for piece in pieces}
            if ids <= earlier:  # another process, with another model, takes the vectors away again
                break
            earlier = ids
            for some in _parts(pieces, batch * _BATCHES_KEPT):
                texts = [searched_text(piece) for piece in some]
                rows = [row for part in _parts(texts, batch) for row in embedder.embed(part)]
                if embedder.model != model:
                    raise EmbedderUnavailable("another model was loaded meanwhile")
                vectors = [Embedding(model=model, vector=row) for row in rows]
                store.set_vectors(table, [(piece.id, vector) for piece, vector in zip(some, vectors, strict=True)])
                advance(len(some))


def _parts(whole: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    return (whole[start : start + size] for start in range(0, len(whole), size))
