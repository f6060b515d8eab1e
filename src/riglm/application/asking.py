"""Questions of riglm's own to an upstream."""

import asyncio
from collections.abc import Callable
from typing import Final

from riglm.application.exchange import NOWHERE, Exchange
from riglm.domain import jsonrpc
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message, Raw
from riglm.ports.upstream import UpstreamLink

MOST_PAGES: Final = 1000
"""A list that goes on for more pages is taken for endless."""


class Asking:
    """Asks over links, under ids of its own."""

    def __init__(self) -> None:
        self._count = 0

    async def ask(
        self,
        link: UpstreamLink,
        method: str,
        params: bytes,
        on_server_message: Callable[[Message], Message | None] | None = None,
    ) -> Message:
        """The answer to one request; an error response when there is none. Cancelling gives the request up."""
        answer, _ = await self.put(link, method, params, on_server_message)
        return answer

    async def put(
        self,
        link: UpstreamLink,
        method: str,
        params: bytes,
        on_server_message: Callable[[Message], Message | None] | None = None,
    ) -> tuple[Message, ErrorKind | None]:
        """As `ask`; also why there is no answer, None when the upstream itself answered."""
        self._count += 1
        message = jsonrpc.request(b'"riglm-%d"' % self._count, method, params)
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def replied(_: Exchange, reply: Message) -> Message:
            if not answer.done():
                answer.set_result(reply)
            return reply

        exchange = Exchange(message, NOWHERE, on_reply=replied, on_server_message=on_server_message)
        link.request(message, exchange)
        try:
            return await answer, exchange.failure
        except asyncio.CancelledError:
            if not exchange.done:
                link.cancel(exchange, None)
                exchange.cancelled()
            raise

    async def pages(self, link: UpstreamLink, method: str, member: str, params: bytes) -> tuple[list[Raw], Message]:
        """All entries of a list, page after page, and the last answer.

        The list ends early at a page that is an error, at a cursor that was seen before, and after `MOST_PAGES`.
        """
        entries: list[Raw] = []
        seen: set[bytes] = set()
        while True:
            answer = await self.ask(link, method, params)
            fields = jsonrpc.members(answer.result) if answer.result else {}
            entries += jsonrpc.elements(fields.get(member, b"[]"))
            cursor = bytes(fields.get("nextCursor", b""))
            if not cursor or cursor == b"null" or cursor in seen or len(seen) >= MOST_PAGES:
                return entries, answer
            seen.add(cursor)
            params = jsonrpc.with_member(params, ("cursor",), cursor)
