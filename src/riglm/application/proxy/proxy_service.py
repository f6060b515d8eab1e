"""The proxy: takes the requests of all clients through the stages to the servers, and the replies back."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final

from riglm.application.proxy.connection import Connection
from riglm.application.proxy.eras import HANDSHAKE, MODERN
from riglm.application.proxy.merging import NAMED, MergedListCache
from riglm.application.proxy.parts import ProxyParts
from riglm.application.proxy.request import Request
from riglm.application.proxy.request_stages import MisreadingStage
from riglm.application.proxy.stage import Stage, Step, plan
from riglm.application.proxy.stages import STAGES
from riglm.application.proxy.upstreams import Upstreams
from riglm.domain import jsonrpc
from riglm.domain.access import AccessRules
from riglm.domain.errors import ConfigurationError
from riglm.domain.jsonrpc import Message
from riglm.domain.naming import Naming
from riglm.domain.request_params import RequestEnvelope
from riglm.domain.session import ACCESS, IdentificationMethod, ProtocolEra, Session, Transport
from riglm.ports.downstream import NO_HEADERS, Caller, ClientChannel, ClientResponseSink, DownstreamPort
from riglm.ports.upstream import UpstreamPort

PREFLIGHT_SECONDS: Final = 5.0
"""A server that has not sent its lists by then is not checked; what it claims later is left out and logged."""

_MAX_PLANS: Final = 100
_MAX_NAMED: Final = 5
_KINDS: Final = {"tools/list": "tool", "prompts/list": "prompt"}
_log: Final = logging.getLogger("riglm.proxy")


class ProxyService(DownstreamPort):
    """Connects any number of clients to the servers.

    `handle` takes a request in and `finish` its reply out, through the stages of `STAGES`.
    """

    def __init__(
        self,
        parts: ProxyParts,
        upstreams: Sequence[UpstreamPort],
        naming: Naming = "prefix",
        access: AccessRules | None = None,
        *,
        is_alone: bool | None = None,
    ) -> None:
        """Create a proxy in front of one or more `upstreams`; the names of several are merged by `naming`.

        `is_alone` is False for one upstream that is left of several: its tools are named as before. Callers with
        `access` rules reach only the servers that these permit.
        """
        self.parts = parts
        self._stages = [stage(parts) for stage in STAGES if stage.is_used(parts)]
        self.misreading = MisreadingStage(parts)
        """Refuses notifications as well, which pass no stages."""
        self._plans: dict[str, tuple[Step, ...]] = {}
        self._ports = tuple(upstreams)
        is_alone = len(self._ports) == 1 if is_alone is None else is_alone
        self._merged_lists = None if is_alone else MergedListCache(naming)
        self._access = access
        self._is_per_caller = any(port.spec.oauth.is_per_caller for port in upstreams)
        self._modern: dict[tuple[str, str], Upstreams] = {}
        self._notify_others: Callable[[str], None] = lambda _: None
        if parts.filtering is not None:
            parts.tracking.on_closed(parts.filtering.forget)

    # ---- the way of a request

    def handle(self, request: Request) -> None:
        """Take a request in: each stage may reply; otherwise it goes to its server."""
        self._advance(request, self._plans.get(request.method) or self._plan(request.method))

    def finish(self, request: Request, reply: Message | None) -> None:
        """Take a reply out, through the stages that its request has passed; None if it was cancelled."""
        while request.passed:
            stage, request.passed = request.passed[0], request.passed[1:]
            try:
                outcome = stage.after(request, reply)
            except Exception:  # noqa: BLE001  # a stage must not cost the reply
                outcome = self._failed(request, stage, reply)
            if outcome is None or isinstance(outcome, Message):
                reply = outcome
            else:
                request.start(self._finish_later(request, stage, reply, outcome))
                return
        self._deliver(request, reply)

    def _plan(self, method: str) -> tuple[Step, ...]:
        steps = plan(self._stages, method)
        if len(self._plans) < _MAX_PLANS:
            self._plans[method] = steps
        return steps

    def _advance(self, request: Request, steps: tuple[Step, ...]) -> None:
        for place, (before, passed, stage) in enumerate(steps, 1):
            request.passed = passed
            if before is None:
                continue
            try:
                outcome = before(request)
            except Exception:  # noqa: BLE001  # a stage must not cost the request
                outcome = self._failed(request, stage, None)
            if outcome is None:
                continue
            if isinstance(outcome, Message):
                self.finish(request, outcome)
            else:
                request.start(self._advance_later(request, stage, outcome, steps[place:]))
            return
        request.upstreams.send(request)

    async def _advance_later(
        self, request: Request, stage: Stage, waiting: Coroutine[Any, Any, Message | None], steps: tuple[Step, ...]
    ) -> None:
        try:
            reply = await waiting
        except Exception:  # noqa: BLE001  # a stage must not cost the request
            reply = self._failed(request, stage, None)
        if request.done:
            return
        if reply is None:
            request.resume()
            self._advance(request, steps)
        else:
            self.finish(request, reply)

    async def _finish_later(
        self, request: Request, stage: Stage, reply: Message | None, waiting: Coroutine[Any, Any, Message | None]
    ) -> None:
        try:
            reply = await waiting
        except Exception:  # noqa: BLE001  # a stage must not cost the reply
            reply = self._failed(request, stage, reply)
        self.finish(request, reply)

    @staticmethod
    def _failed(request: Request, stage: Stage, reply: Message | None) -> Message | None:
        """Log the exception of a stage that is being handled; an error if the stage fails closed."""
        _log.exception("a stage of a request failed", extra={"stage": type(stage).__name__, "method": request.method})
        if not stage.fails_closed:
            return reply
        words = "Internal error in riglm: its log says more"
        return jsonrpc.error(request.id, jsonrpc.INTERNAL_ERROR, words)

    def _deliver(self, request: Request, reply: Message | None) -> None:
        if request.done:
            return
        request.done = True
        if request.connection is not None:
            request.connection.requests.pop(request.key, None)
        if reply is not None:
            request.sink.replied(reply, request.status)
            if self.parts.meter is not None and request.call is not None and request.came:
                self.parts.meter.held(request.call.server, request.own_seconds())
        if request.call is None and _log.isEnabledFor(logging.DEBUG):
            outcome = "cancelled" if reply is None else "error" if reply.error else "response"
            _log.debug("request ended", extra={"method": request.method, "outcome": outcome})

    # ---- clients

    def connect(self, caller: Caller, channel: ClientChannel, sink: ClientResponseSink | None = None) -> Connection:
        connection = Connection(self, caller, channel, sink)
        if self.parts.list_changes is not None:
            self.parts.list_changes.add(connection)
        return connection

    def receive_modern(
        self,
        message: Message,
        envelope: RequestEnvelope,
        sink: ClientResponseSink,
        caller: Caller,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
    ) -> Request:
        upstreams = self.modern_upstreams(caller)
        request = Request(self, upstreams, message, sink, caller, envelope=envelope, headers=headers)
        self.handle(request)
        return request

    def notify_modern(self, message: Message, caller: Caller) -> None:
        if message.method == "notifications/cancelled" or self.misreading.refuses(message):
            return  # it would name a request of another client there
        for member in self.modern_upstreams(caller).members.values():
            member.link.send(message)

    def input_schema(self, tool: str, caller: Caller) -> bytes | None:
        upstreams, filtering = self.modern_upstreams(caller), self.parts.filtering
        if filtering is not None and filtering.guards:
            session = _anonymous(caller.access)
            if any(filtering.denial(session, name) is not None for name in upstreams.names_of(tool)):
                return None
        return upstreams.input_schema(tool)

    def hold(self, *, on: bool) -> None:
        for port in self._ports:
            port.hold(on=on)

    def modern_upstreams(self, caller: Caller) -> Upstreams:
        """Return the servers as modern clients with a caller's rights use them."""
        key = (caller.access, caller.principal if self._is_per_caller else "")
        upstreams = self._modern.get(key)
        if upstreams is None:
            upstreams = Upstreams(self.parts, MODERN, self._permitted(*key), self._merged_lists)
            upstreams.subscriptions.notify_others = self._notify_others
            if self.parts.list_changes is not None:
                self.parts.list_changes.add(upstreams.subscriptions)
            self._modern[key] = upstreams
        return upstreams

    def handshake_upstreams(self, connection: Connection) -> Upstreams:
        """Return the servers as the client of a connection uses them."""
        caller = connection.caller
        return Upstreams(
            self.parts, HANDSHAKE, self._permitted(caller.access, caller.principal), self._merged_lists, connection
        )

    def _permitted(self, access: str, principal: str) -> Sequence[UpstreamPort]:
        """Return the servers that access rules permit, all without rules, as the principal uses them."""
        permitted: Iterable[UpstreamPort] = self._ports
        if access and self._access is not None:
            rules = self._access
            permitted = (port for port in permitted if rules.permits_server(access, port.spec.name))
        return [port.for_principal(principal) for port in permitted]

    def share(self, notify: Callable[[str], None]) -> Callable[[str], None]:
        """Publish clients whose list changed with `notify`; returns the handler for such messages."""
        self._notify_others = notify
        for upstreams in self._modern.values():
            upstreams.subscriptions.notify_others = notify

        def on_change(client_id: str) -> None:
            for upstreams in self._modern.values():
                upstreams.subscriptions.notify(client_id)

        return on_change

    # ---- start and end

    async def check_names(self, timeout_seconds: float = PREFLIGHT_SECONDS) -> None:
        """Check before the first client comes whether two servers claim one name.

        Raises:
            ConfigurationError: two servers do; both are named.
        """
        if self._merged_lists is None or self._merged_lists.naming != "none" or len(self._ports) < 2:
            return
        merged_lists = MergedListCache("none", logs_collisions=False)
        upstreams = Upstreams(self.parts, HANDSHAKE, self._ports, merged_lists)
        try:
            async with asyncio.timeout(timeout_seconds):
                await upstreams.fetch_all(NAMED)
        except TimeoutError:
            _log.warning("could not look at the names of all servers in time", extra={"seconds": timeout_seconds})
        finally:
            await upstreams.close()
        found = [
            f"{name!r} is a {_KINDS[method]} of {holder!r} and of {other!r}"
            for method in NAMED
            for name, holder, other in upstreams.directory.joined(method).collisions
        ]
        if found:
            more = f", and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
            words = "; ".join(found[:_MAX_NAMED])
            raise ConfigurationError(f"naming: {words}{more}: use `naming: prefix` or `naming: on_collision`")

    def sweep(self) -> None:
        """End the sessions that have been idle for too long."""
        self.parts.sessions.sweep()

    async def close(self) -> None:
        """Close all links, then all sessions."""
        if self.parts.list_changes is not None:
            await self.parts.list_changes.close()
        await asyncio.gather(*(upstreams.close() for upstreams in self._modern.values()))
        ends = await asyncio.gather(*(port.close() for port in self._ports), return_exceptions=True)
        for port, problem in zip(self._ports, ends, strict=True):
            if isinstance(problem, Exception):
                _log.error("closing failed", extra={"upstream": port.spec.name}, exc_info=problem)
        self.parts.sessions.close()


def _anonymous(access: str) -> Session:
    """Return a session of any caller with these access rules."""
    return Session(
        started_at=0.0,
        era=ProtocolEra.MODERN,
        transport=Transport.HTTP,
        method=IdentificationMethod.ADDRESS,
        metadata={ACCESS: access},
    )
