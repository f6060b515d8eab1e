"""What conversations teach of contexts: pairs of what was asked for and the tools that it took."""

from collections.abc import Callable, Sequence
from typing import Final

from riglm.application.importing.conversations import Conversation
from riglm.application.prediction.learner import Learner
from riglm.domain.invocation import Found
from riglm.domain.learning import SIGNALS, LearnedPair
from riglm.domain.prediction import Context
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.domain.session import Session
from riglm.ports.analytics import PairsForgotten
from riglm.ports.embedder import EmbedderPort

BATCH: Final = 32
"""Contexts that are embedded at once."""


class ContextLessons:
    """Teaches the pairs that are known already, as the sessions would have that riglm had been part of."""

    def __init__(
        self, pairs: LearnedPairs, embedder: EmbedderPort, *, most_pairs: int, scope: str, names: Callable[[str], str]
    ) -> None:
        """`scope` is who learns, and `names` gives the keyed hash of a client's name."""
        self._embedder = embedder
        self._scope = scope
        self._learned: list[LearnedPair | PairsForgotten] = []
        self._learner = Learner(pairs, self._keep, most_pairs=most_pairs, names=names)

    def of(self, conversation: Conversation, session: Session) -> list[LearnedPair | PairsForgotten]:
        """What a conversation teaches, to be stored with its session.

        Raises:
            EmbedderUnavailable: the model does not answer.
        """
        contexts = self._embedded(conversation)
        for step in conversation.steps:
            for number in () if step.failed else step.asked:
                self._learner.paired(
                    contexts[number],
                    step.tool,
                    SIGNALS[Found.LISTED],
                    scope=self._scope,
                    at=step.started,
                    fingerprint="",  # what the tool said of itself then is not known
                    session=session,
                )
        learned, self._learned = self._learned, []
        return learned

    def _keep(self, record: LearnedPair | PairsForgotten, _: int) -> None:
        self._learned.append(record)

    def _embedded(self, conversation: Conversation) -> dict[int, Context]:
        numbers = sorted({number for step in conversation.steps for number in step.asked})
        found: dict[int, Context] = {}
        for start in range(0, len(numbers), BATCH):
            some = numbers[start : start + BATCH]
            texts = [conversation.contexts[number] for number in some]
            for number, text, vector in zip(some, texts, self._embedder.embed(texts), strict=True):
                found[number] = Context(text=text, vector=vector, model=self._embedder.model)
        return found


def pairs_taught(conversation: Conversation) -> int:
    """How many pairs a conversation teaches at most."""
    return len({(number, step.tool) for step in conversation.steps if not step.failed for number in step.asked})


def latest_that_fit(conversations: Sequence[Conversation], most_pairs: int) -> set[int]:
    """The places of the latest conversations that teach so many pairs together: older ones would be forgotten again."""
    chosen: set[int] = set()
    for place in reversed(range(len(conversations))):
        if most_pairs <= 0:
            break
        chosen.add(place)
        most_pairs -= pairs_taught(conversations[place])
    return chosen
