"""The stages of requests of any kind: what is refused, whose session it is, and which server it goes to."""

from riglm.application.proxy.parts import ProxyParts
from riglm.application.proxy.request import CALL, LIST, Request
from riglm.application.proxy.stage import Outcome, Stage
from riglm.domain import jsonrpc, request_params
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message


class MisreadingStage(Stage):
    """While tools are denied, refuses what a server that ignores case could take for the call of one."""

    fails_closed = True

    def __init__(self, parts: ProxyParts) -> None:
        self._pins = parts.pins
        self._filtering = parts.filtering

    def before(self, request: Request) -> Outcome:
        if not self._pins.is_strict and (self._filtering is None or not self._filtering.guards):
            return None
        refusal = self._refusal(request.asked)
        if refusal is not None:
            request.status = 400
        return refusal

    def refuses(self, message: Message) -> bool:
        """Return True for a message without a reply that a server could take for such a call."""
        is_on = self._pins.is_strict or (self._filtering is not None and self._filtering.guards)
        return is_on and self._refusal(message) is not None

    @staticmethod
    def _refusal(message: Message) -> Message | None:
        method = message.method or ""
        if method.casefold() == CALL and (method != CALL or not message.is_request):
            reason = "tools are called by 'tools/call', with an id"
        elif (key := request_params.disguised_key(message)) is not None:
            reason = f"{key!r} could be taken for {key.casefold()!r}"
        else:
            return None
        return jsonrpc.error(message.id, jsonrpc.INVALID_REQUEST, f"Invalid request: {reason}")


class SharedStateStage(Stage):
    """Brings a session up to date before a request of it, and publishes what changed before the reply goes out."""

    methods = frozenset({CALL, LIST, "initialize"})

    def __init__(self, parts: ProxyParts) -> None:
        self._sharing = parts.sharing
        self._sessions = parts.sessions

    @classmethod
    def is_used(cls, parts: ProxyParts) -> bool:
        return parts.sharing is not None

    def before(self, request: Request) -> Outcome:
        place = None if self._sharing is None else request.era.place_of(request, self._sessions)
        if self._sharing is None or place is None:
            return None
        base = None if request.handshake is None else request.handshake.session
        request.visit = self._sharing.visit(place, base, is_call=request.method == CALL)
        return request.visit.begin()

    def after(self, request: Request, reply: Message | None) -> Outcome:
        return reply if request.visit is None else request.visit.end(reply)


class SessionStage(Stage):
    """Identifies the session by the best evidence that the request carries."""

    methods = frozenset({CALL, LIST, "server/discover"})

    def __init__(self, parts: ProxyParts) -> None:
        self._sessions = parts.sessions

    def before(self, request: Request) -> Outcome:
        if request.method != "server/discover":
            request.session = request.era.identify(request, self._sessions)
        elif request.envelope is not None:
            self._sessions.discovered(request.caller, request.envelope.client, request.envelope.meta)
        return None


class EraStage(Stage):
    """Refuses modern requests if the servers do not support the era: the client opens with `initialize` then."""

    def before(self, request: Request) -> Outcome:
        negotiation = request.upstreams.negotiation
        return None if negotiation is None else negotiation.admit(request)


class ResolveStage(Stage):
    """Finds the server of a request. In front of several servers, riglm answers what concerns all of them."""

    fails_closed = True

    def before(self, request: Request) -> Outcome:
        return request.upstreams.resolve(request)

    def after(self, request: Request, reply: Message | None) -> Outcome:
        member = request.member
        if member is not None and reply is not None and request.upstreams.only is None:
            if request.failure is ErrorKind.UNAVAILABLE:
                member.forget()
            request.upstreams.router.note_task(member.name, reply)
        return reply
