"""The tool, put together from the configuration."""

from collections.abc import Callable

from riglm.application.knowledge.embedding import QuestionEmbedder
from riglm.application.knowledge.inner_voice import InnerVoice
from riglm.application.knowledge.journal import Journal
from riglm.application.knowledge.parameters import Defaults
from riglm.application.knowledge.retrieval import Bounds, Retrieval
from riglm.application.knowledge.storing import StoreAside
from riglm.application.worker import Worker
from riglm.domain.schemas.knowledge import Knowledge
from riglm.ports.embedder import Embedders
from riglm.ports.knowledge import KnowledgePort


def build_inner_voice(
    settings: Knowledge,
    worker: Worker,
    embedders: Callable[[], Embedders],
    open_store: Callable[[], KnowledgePort],
    *,
    is_silent: bool,
) -> InnerVoice:
    """A tool that has opened nothing yet; `embedders` are made on the worker. A silent one logs counts alone."""
    expected = None if is_silent else settings.dimensions
    embed = QuestionEmbedder(worker, embedders, seconds=settings.deadline, dimensions=expected)
    store = StoreAside(open_store, seconds=settings.deadline)
    retrieval = Retrieval(embed, store, bounds_of(settings), shared=settings.shared)
    return InnerVoice(retrieval, defaults_of(settings), Journal(is_silent=is_silent), (embed.close, store.close))


def defaults_of(settings: Knowledge) -> Defaults:
    """What counts when a question does not say."""
    return Defaults(top_k=settings.top_k, floor=settings.floor, mix=settings.mix)


def bounds_of(settings: Knowledge) -> Bounds:
    """What counts whatever a question says."""
    return Bounds(min_floor=settings.min_floor, most_candidates=settings.max_candidates_per_source)
