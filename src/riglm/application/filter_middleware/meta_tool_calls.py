"""Calls of meta-tools."""

import time
from collections.abc import Awaitable, Callable

from riglm.application.filter_middleware.middleware import FilterMiddleware
from riglm.application.forwarding.proxied_request import ProxiedRequest
from riglm.application.forwarding.riglm_requests import Workers
from riglm.application.tool_lists.list_writer import CALL_TOOL
from riglm.domain import jsonrpc
from riglm.domain.invocation import OWN_UPSTREAM
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.request_params import RequestParams
from riglm.domain.session import ProtocolEra, Session
from riglm.ports.downstream import ClientResponseSink, InFlightRequest

Forward = Callable[[Message, ClientResponseSink], InFlightRequest | None]
"""Sends a request to the servers, and its answer to the sink."""


class MetaToolCall(ProxiedRequest):
    """A call of a meta-tool; `forwarded` is the upstream call that `call_tool` requested."""

    __slots__ = ("forwarded",)

    def __init__(
        self, message: Message, sink: ClientResponseSink, *, on_done: Callable[[ProxiedRequest], None] | None = None
    ) -> None:
        super().__init__(message, sink, on_done=on_done)
        self.forwarded: InFlightRequest | None = None


class MetaToolCalls:
    """Runs each meta-tool in a separate task, or forwards the call that `call_tool` requests."""

    def __init__(self, showing: FilterMiddleware) -> None:
        self._showing = showing
        self._workers = Workers()

    def start(
        self,
        call: MetaToolCall,
        session: Session,
        name: str,
        given: RequestParams,
        *,
        ready: Callable[[], Awaitable[None]],
        forward: Forward,
        changed: Callable[[ClientResponseSink], None],
    ) -> None:
        """Run a tool once `ready`; `changed` says to the client, before it has its answer, that its list changed."""
        self._workers.start(call, self._run, call, session, name, given, ready, forward, changed)

    def cancel(self, call: MetaToolCall) -> None:
        """The client gave up a call that was not forwarded."""
        self._workers.cancel(call)
        call.cancelled()

    async def close(self) -> None:
        """Give up all calls."""
        await self._workers.close()

    async def _run(
        self,
        call: MetaToolCall,
        session: Session,
        name: str,
        given: RequestParams,
        ready: Callable[[], Awaitable[None]],
        forward: Forward,
        changed: Callable[[ClientResponseSink], None],
    ) -> None:
        started, clock = time.time(), time.perf_counter()
        if self._showing.meta_tools.is_about_lists(name) and (
            name != CALL_TOOL or self._showing.filtering.state(session).view is None
        ):
            await ready()
            self._showing.services.waited()
        if not self._showing.meta_tools.owns(session, name):  # now that its list is known, it is a server's own tool
            call.forwarded = forward(call.message, call)
            return
        answer = await self._showing.meta_tools.run(session, name, bytes(given.arguments) or b"{}")
        if answer.forward is not None:
            call.forwarded = forward(_standing_for(call.message, *answer.forward), call)
            return
        if answer.selection is not None:
            self._showing.expose(session, answer.selection)
        if answer.list_changed:
            changed(call.sink)
        call.call = self._showing.services.call(session, OWN_UPSTREAM, name, given, known=True)
        call.call.started, call.call.clock = started, clock  # what is forwarded is not counted twice
        call.call.is_confidential = self._showing.meta_tools.is_confidential(name)
        call.replied(jsonrpc.result(call.message.id or b"null", _complete(session, answer.result)))


def _standing_for(asked: Message, name: bytes, arguments: bytes) -> Message:
    """Return the params of the call that a `call_tool` requests; all other members of the request are kept."""
    fields = jsonrpc.members(asked.params)
    fields["name"] = Raw(name)
    fields.pop("arguments", None)
    if arguments:
        fields["arguments"] = Raw(arguments)
    return asked.replace(params=jsonrpc.join_object(fields))


def _complete(session: Session, result: bytes) -> bytes:
    """A result as the era of the session wants it."""
    if session.era is ProtocolEra.HANDSHAKE or "resultType" in jsonrpc.members(result):
        return result
    return jsonrpc.join_object({"resultType": b'"complete"', **jsonrpc.members(result)})
