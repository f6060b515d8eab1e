"""A set with its vectors, ready to be ranked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from riglm.application.evaluation.dataset import Dataset
from riglm.domain.errors import RiglmError
from riglm.domain.prediction import Context, Vector
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.domain.retrieval.retriever import Retriever
from riglm.domain.retrieval.texts import request_texts, tool_text
from riglm.ports.embedder import EmbedderPort

_AT_ONCE: Final = 32


class EmbedderChanged(RiglmError):
    """Another model took over while a set was embedded: its vectors cannot be compared. Run the command again."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prepared:
    """A set, the vectors of its tools by name, and its requests as contexts in the order of the queries."""

    dataset: Dataset
    model: str
    vectors: Mapping[str, Vector]
    contexts: tuple[Context, ...]

    def retriever(self, pairs: LearnedPairs | None = None) -> Retriever:
        """Retrieval over the whole catalogue."""
        return Retriever(self.dataset.tools, pairs=pairs).with_vectors(self.model, self.vectors)


def prepare(dataset: Dataset, embedder: EmbedderPort, on_embedded: Callable[[int], None] = lambda _: None) -> Prepared:
    """Embed a set; `on_embedded` is told how many more texts are done.

    Raises:
        EmbedderUnavailable: the embedder does not answer.
        EmbedderChanged: another model took over meanwhile.
    """
    tools = [tool_text(tool) for tool in dataset.tools]
    requests = [request_texts(query.text) for query in dataset.queries]
    texts = list(dict.fromkeys([*tools, *(text for request in requests for text in request)]))
    embedder.embed_public(texts[:1])
    model = embedder.model
    known: dict[str, Vector] = {}
    for start in range(0, len(texts), _AT_ONCE):
        some = texts[start : start + _AT_ONCE]
        known.update(zip(some, embedder.embed_public(some), strict=True))
        if embedder.model != model:
            raise EmbedderChanged(f"{dataset.name}: {embedder.model} took over from {model} — fix: run it again")
        on_embedded(len(some))
    return Prepared(
        dataset=dataset,
        model=model,
        vectors={tool.name: known[text] for tool, text in zip(dataset.tools, tools, strict=True)},
        contexts=tuple(_context(request, known, model) for request in requests),
    )


def text_count(dataset: Dataset) -> int:
    """How many different texts of a set are embedded."""
    requests = (text for query in dataset.queries for text in request_texts(query.text))
    return len({*map(tool_text, dataset.tools), *requests})


def _context(request: Sequence[str], known: Mapping[str, Vector], model: str) -> Context:
    return Context(text=request[0], vector=np.stack([known[text] for text in request]), model=model)
