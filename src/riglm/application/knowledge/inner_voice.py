"""The tool `inner_voice.retrieve`."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from riglm.application.knowledge.answers import fields_of
from riglm.application.knowledge.errors import Code, Unanswered, refusal
from riglm.application.knowledge.journal import Journal
from riglm.application.knowledge.parameters import Defaults, question
from riglm.application.knowledge.retrieval import Bounds, Retrieval
from riglm.application.meta_answers import structured
from riglm.domain import jsonrpc

_INTERNAL: Final = Unanswered(Code.INTERNAL_ERROR, "the question cannot be answered; the log of riglm says more")


class InnerVoice:
    """Answers calls of the tool; nothing is raised, and nothing is opened before the first."""

    def __init__(
        self,
        retrieval: Retrieval,
        defaults: Defaults,
        journal: Journal,
        closing: Sequence[Callable[[], Awaitable[None]]] = (),
    ) -> None:
        """`defaults` count where a question does not say; `closing` lets go of what `retrieval` asks."""
        self._retrieval = retrieval
        self._defaults = defaults
        self._journal = journal
        self._closing = tuple(closing)

    async def retrieve(self, principal: str, arguments: bytes) -> bytes:
        """The raw tool result for raw arguments, asked by a principal, told by its keyed hash."""
        try:
            asked = question(jsonrpc.plain(arguments), self._defaults)
            answer = await self._retrieval.answer(asked, principal)
            result = structured(fields_of(answer))
        except Unanswered as error:
            self._journal.refused(error)
            return refusal(error)
        except Exception as error:  # noqa: BLE001  # whatever it is, the client gets a code that it knows
            self._journal.broke(error)
            return refusal(_INTERNAL)
        self._journal.answered(answer)
        return result

    def go_by(self, defaults: Defaults, bounds: Bounds) -> None:
        """Answer the next question by others than before."""
        self._defaults = defaults
        self._retrieval.bounds = bounds

    async def close(self) -> None:
        """Let go of the model and the store."""
        for close in self._closing:
            await close()
        self._journal.end()
