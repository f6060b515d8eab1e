"""The stage that refuses requests which riglm and a server could read as different ones."""

from riglm.application.proxy.parts import ProxyParts
from riglm.application.proxy.request import CALL, Request
from riglm.application.proxy.stage import Outcome, Stage
from riglm.domain import jsonrpc, request_params
from riglm.domain.jsonrpc import Message


class MisreadingStage(Stage):
    """While tools are denied, refuses what a server that ignores case could take for the call of one."""

    fails_closed = True

    def __init__(self, parts: ProxyParts) -> None:
        self._pins = parts.pins
        self._filtering = parts.filtering

    def before(self, request: Request) -> Outcome:
        refusal = self.refusal(request.asked)
        if refusal is not None:
            request.status = 400
        return refusal

    def refusal(self, message: Message) -> Message | None:
        """Return the error for such a message."""
        if not self._pins.is_strict and (self._filtering is None or not self._filtering.guards):
            return None
        method = message.method or ""
        if method.casefold() == CALL and (method != CALL or not message.is_request):
            reason = "tools are called by 'tools/call', with an id"
        elif (key := request_params.disguised_key(message)) is not None:
            reason = f"{key!r} could be taken for {key.casefold()!r}"
        else:
            return None
        return jsonrpc.error(message.id, jsonrpc.INVALID_REQUEST, f"Invalid request: {reason}")
