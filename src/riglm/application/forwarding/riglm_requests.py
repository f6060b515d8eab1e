"""Requests that riglm sends to an upstream."""

import asyncio
import functools
import logging
import secrets
from collections.abc import Callable, Coroutine
from typing import Any, Final

from riglm.application.forwarding.proxied_request import NOWHERE, ProxiedRequest
from riglm.domain import jsonrpc
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message, Raw
from riglm.ports.upstream import NullServerMessageHandler, ServerMessageHandler, UpstreamLink

MAX_PAGES: Final = 1000
"""A list that goes on for more pages is taken for endless."""

MAX_BYTES: Final = 64 << 20
"""So is one whose pages are larger than this together."""

MAX_SECONDS: Final = 120.0
"""Maximum time in seconds for a complete list."""

_log: Final = logging.getLogger("riglm.proxy")


class Asking:
    """Asks over links, under ids that no client thinks of.

    What a server sends until its answer comes goes to a message handler: some servers ask the client meanwhile.
    """

    def __init__(self, message_handler: ServerMessageHandler | None = None) -> None:
        """By default riglm answers requests of servers itself."""
        self._message_handler = message_handler or NullServerMessageHandler()
        self._count = 0
        self._prefix = f"riglm-{secrets.token_hex(4)}".encode()

    async def ask(self, link: UpstreamLink, method: str, params: bytes) -> Message:
        """The answer to one request; an error response when there is none. Cancelling gives the request up."""
        answer, _ = await self.put(link, method, params)
        return answer

    async def put(
        self, link: UpstreamLink, method: str, params: bytes, on_server_message: Callable[[Message], None] | None = None
    ) -> tuple[Message, ErrorKind | None]:
        """As `ask`; also why there is no answer, None when the upstream itself answered.

        `on_server_message` gets what the server sends meanwhile in place of the message handler.
        """
        self._count += 1
        message = jsonrpc.request(b'"%b-%d"' % (self._prefix, self._count), method, params)
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def replied(_: ProxiedRequest, reply: Message) -> Message:
            if not answer.done():
                answer.set_result(reply)
            return reply

        handle = on_server_message or functools.partial(self._message_handler.unsolicited, link)
        exchange = ProxiedRequest(message, NOWHERE, on_reply=replied, on_server_message=handle)
        exchange.send(link)
        try:
            return await answer, exchange.failure
        except asyncio.CancelledError:
            if not exchange.done:
                link.cancel(exchange, None)
                exchange.cancelled()
            raise

    async def pages(self, link: UpstreamLink, method: str, member: str, params: bytes) -> tuple[list[Raw], Message]:
        """All entries of a list, page after page, and the last answer.

        The list ends early at a page that is an error, at a cursor that was seen before, and where it is taken for
        endless.
        """
        entries: list[Raw] = []
        seen: set[bytes] = set()
        size, deadline = 0, asyncio.get_running_loop().time() + MAX_SECONDS
        while True:
            answer = await self.ask(link, method, params)
            fields = jsonrpc.members(answer.result) if answer.result else {}
            entries += jsonrpc.elements(fields.get(member, b"[]"))
            size += len(answer.line)
            cursor = jsonrpc.next_cursor(fields)
            if not cursor:
                return entries, answer
            late = asyncio.get_running_loop().time() > deadline
            if cursor in seen or len(seen) >= MAX_PAGES - 1 or size > MAX_BYTES or late:
                about = {"upstream": link.spec.name, "method": method, "entries": len(entries)}
                _log.warning("took a list for endless, and what came of it for all", extra=about)
                return entries, answer
            seen.add(cursor)
            params = jsonrpc.with_member(params, ("cursor",), cursor)


class Workers:
    """Runs work for requests. If it fails, the client gets an error response."""

    def __init__(self) -> None:
        self._tasks: dict[ProxiedRequest, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, exchange: ProxiedRequest, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Work for an exchange, which has no other work at the time."""
        task = asyncio.get_running_loop().create_task(self._guarded(exchange, work, args))
        self._tasks[exchange] = task
        task.add_done_callback(lambda _: self._tasks.pop(exchange, None))

    def cancel(self, exchange: ProxiedRequest) -> None:
        """Give up the work for an exchange, if there is any."""
        task = self._tasks.get(exchange)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Give up everything, and come back when it has ended."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _guarded(
        self, exchange: ProxiedRequest, work: Callable[..., Coroutine[Any, Any, None]], args: tuple[Any, ...]
    ) -> None:
        try:
            await work(*args)
        except Exception:  # noqa: BLE001  # fails open
            _log.exception("a request failed inside riglm")
            exchange.failed(ErrorKind.UNKNOWN, "Internal error in riglm: its log says more")
