"""The inner voice, where it is switched on."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from riglm.composition.wanted import is_silent
from riglm.domain.schemas.knowledge import Knowledge
from riglm.domain.schemas.settings import Settings

if TYPE_CHECKING:  # numpy comes with it, and is imported on the worker
    from riglm.application.knowledge.inner_voice import InnerVoice
    from riglm.application.worker import Worker
    from riglm.ports.embedder import Embedders
    from riglm.ports.knowledge import KnowledgePort


def make_voice(
    settings: Settings,
    worker: "Worker",
    embedders: "Callable[[], Embedders]",
    create_knowledge: "Callable[[], KnowledgePort]",
) -> "InnerVoice | None":
    """The tool that asks the knowledge store, if it is switched on."""
    if not settings.knowledge.enabled:
        return None
    from riglm.application.knowledge.building import build_inner_voice

    return build_inner_voice(
        settings.knowledge,
        worker,
        embedders,
        create_knowledge,
        is_silent=is_silent(),
    )


def going_by(voice: "InnerVoice") -> Callable[[Knowledge], None]:
    """Takes what of the settings may change while the tool is there."""
    from riglm.application.knowledge.building import bounds_of, defaults_of

    return lambda knowledge: voice.go_by(defaults_of(knowledge), bounds_of(knowledge))
