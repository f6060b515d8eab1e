"""The tool `inner_voice.retrieve`."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from riglm.application.knowledge.answers import fields_of
from riglm.application.knowledge.errors import Code, Unanswered, refusal
from riglm.application.knowledge.journal import Journal
from riglm.application.knowledge.parameters import Defaults, question
from riglm.application.knowledge.retrieval import Bounds, Retrieval
from riglm.application.lists.meta_answers import structured_result
from riglm.domain import jsonrpc

_HEAD_START: Final = 0.2  # seconds for the list that made it known
_INTERNAL: Final = Unanswered(Code.INTERNAL_ERROR, "the question cannot be answered; the log of riglm says more")


class InnerVoice:
    """Answers calls of the tool; nothing is raised, and nothing is opened before `get_ready` or the first of them."""

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
        self._rehearsal: asyncio.Task[None] | None = None

    async def retrieve(self, principal: str, arguments: bytes) -> bytes:
        """The raw tool result for raw arguments, asked by a principal, told by its keyed hash."""
        try:
            asked = question(jsonrpc.plain(arguments), self._defaults)
            answer = await self._retrieval.answer(asked, principal)
            result = structured_result(fields_of(answer))
        except Unanswered as error:
            self._journal.refused(error)
            return refusal(error)
        except Exception as error:  # noqa: BLE001  # whatever it is, the client gets a code that it knows
            self._journal.broke(error)
            return refusal(_INTERNAL)
        self._journal.answered(answer)
        return result

    def get_ready(self) -> None:
        """Begin to load what the first question needs, so that it need not wait; from the event loop, at any time."""
        if self._rehearsal is None:
            self._rehearsal = asyncio.create_task(self._rehearse())

    def go_by(self, defaults: Defaults, bounds: Bounds) -> None:
        """Answer the next question by others than before."""
        self._defaults = defaults
        self._retrieval.bounds = bounds

    async def close(self) -> None:
        """Let go of the model and the store."""
        if self._rehearsal is not None:
            self._rehearsal.cancel()
            await asyncio.wait({self._rehearsal})
        for close in self._closing:
            await close()
        self._journal.end()

    async def _rehearse(self) -> None:
        await asyncio.sleep(_HEAD_START)
        with contextlib.suppress(Exception):  # the first question meets it as well, and tells
            await self._retrieval.rehearse()
