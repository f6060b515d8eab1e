"""One `tools/list` of a client, asked page by page until the whole list is known."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from riglm.application.forwarding.asking import LONGEST_SECONDS, MOST_BYTES, MOST_PAGES
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message, Raw
from riglm.ports.downstream import ReplySink, Underway
from riglm.ports.upstream import EventMark

_log: Final = logging.getLogger("riglm.proxy")


class ListWalk(ReplySink, Underway):
    """Asks for the first page by the client's own request, and for the others by requests of riglm's own.

    What belongs to the request goes on to the client, and so does an error, under the client's id. A list that looks
    endless ends where that was noticed.
    """

    def __init__(
        self,
        asked: Message,
        sink: ReplySink,
        *,
        ask: Callable[[Message, ReplySink], Underway | None],
        new_id: Callable[[], bytes],
        whole: Callable[["ListWalk"], None],
        over: Callable[["ListWalk"], None] = lambda _: None,
    ) -> None:
        """`ask` sends a request, `whole` is called once all pages are there, `over` at the end whatever it is."""
        self.asked = asked
        self.sink = sink
        self.pages: list[Message] = []
        self.fields: list[dict[str, Raw]] = []
        """The members of each page's result."""
        self.done = False
        self.current = asked
        """The request that is under way."""
        self.underway: Underway | None = None
        self._ask = ask
        self._new_id = new_id
        self._whole = whole
        self._over = over
        self._seen: set[bytes] = set()
        self._size = 0
        self._deadline = asyncio.get_running_loop().time() + LONGEST_SECONDS

    def start(self) -> None:
        """Ask for the first page."""
        self.underway = self._ask(self.current, self)

    def related(self, message: Message, event: EventMark | None = None) -> None:
        """Pass on what belongs to the request; its places in a stream lead nowhere, for the answer is another one."""
        if not self.done:
            self.sink.related(message)

    def primed(self, event: EventMark) -> None:
        """Begin a stream as the upstream did, but for the place: the client could not take up what riglm makes."""
        if not self.done and not self.pages:
            self.sink.primed(EventMark(None, event.retry_ms))

    def interrupted(self) -> None:
        """Only said to whoever can take streams up."""

    def replied(self, message: Message, status: int = 200, event: EventMark | None = None) -> None:
        """Take a page, and ask for the next one if there is any."""
        if self.done:
            return
        fields = jsonrpc.members(message.result) if message.result else {}
        if "tools" not in fields:
            self.answer(message if not self.pages else message.replace(id=self.asked.id or b"null"), status)
            return
        self.pages.append(message)
        self.fields.append(fields)
        self._size += len(message.line)
        cursor = jsonrpc.next_cursor(fields)
        if not cursor or self._is_endless(cursor):
            self._whole(self)
            return
        self._seen.add(cursor)
        params = jsonrpc.with_member(self.asked.params or b"{}", ("cursor",), cursor)
        self.current = jsonrpc.request(self._new_id(), self.asked.method or "", params)
        self.underway = self._ask(self.current, self)

    def answer(self, message: Message, status: int = 200) -> None:
        """Answer the client."""
        if not self.done:
            self.give_up()
            self.sink.replied(message, status)

    def give_up(self) -> None:
        """Nobody waits for the list any more."""
        self.done = True
        self._over(self)

    def _is_endless(self, cursor: bytes) -> bool:
        late = asyncio.get_running_loop().time() > self._deadline
        if cursor in self._seen or len(self.pages) >= MOST_PAGES or self._size > MOST_BYTES or late:
            _log.warning("took a list for endless, and what came of it for all", extra={"pages": len(self.pages)})
            return True
        return False
