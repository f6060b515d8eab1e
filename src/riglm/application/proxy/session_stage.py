"""The stages that identify the session of a request, and share it with other processes."""

from riglm.application.proxy.parts import ProxyParts
from riglm.application.proxy.request import CALL, LIST, Request
from riglm.application.proxy.stage import Outcome, Stage
from riglm.domain.jsonrpc import Message


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
