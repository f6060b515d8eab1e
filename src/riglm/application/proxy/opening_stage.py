"""The stage of the requests that clients open with: what the client is offered."""

import sys
from typing import Final

from riglm.application.proxy.parts import ProxyParts
from riglm.application.proxy.request import Request
from riglm.application.proxy.stage import Outcome, Stage
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.session import ClientInfo

_PATH: Final = ("capabilities", "tools", "listChanged")


class OpeningStage(Stage):
    """Notes who the client is, and adds to the reply what the filter offers."""

    methods = frozenset({"initialize", "server/discover"})

    def __init__(self, parts: ProxyParts) -> None:
        self._filtering = parts.filtering
        self._always = parts.always
        self._tracking = parts.tracking

    def before(self, request: Request) -> Outcome:
        if request.handshake is not None:
            request.handshake.open(request.asked)
        return None

    def after(self, request: Request, reply: Message | None) -> Outcome:
        if reply is None:
            return None
        opened = request.upstreams.opened(request, reply)
        return self._offer(request, opened) if isinstance(opened, Message) else self._offer_later(request, opened)

    async def _offer_later(self, request: Request, opened: "Outcome") -> Message | None:
        reply = opened if opened is None or isinstance(opened, Message) else await opened
        return None if reply is None else self._offer(request, reply)

    def _offer(self, request: Request, reply: Message) -> Message:
        if not reply.result:
            return reply
        connection = request.handshake
        if connection is not None:
            version = jsonrpc.text(jsonrpc.members(reply.result).get("protocolVersion")) or ""
            connection.session.protocol_version = sys.intern(version)
            self._tracking.session_changed(connection.session)
        if self._always is not None and self._always.is_active:
            reply = offer_tools(reply)
        if self._announces(request):
            reply = announce_changes(reply)
        if connection is not None:
            connection.is_notified = has_announced(reply)
        return reply

    def _announces(self, request: Request) -> bool:
        """Whether lists may change while the client is connected."""
        filtering = self._filtering
        if filtering is None:
            return False
        if request.handshake is not None:
            return filtering.announces(request.handshake.session)
        client = ClientInfo() if request.envelope is None else request.envelope.client
        return filtering.announces_to(request.era.kind, request.caller.transport, client)


def announce_changes(reply: Message) -> Message:
    """Return the reply to an opening request with the capability to announce changes of the tool list.

    A server without tools stays one.
    """
    if _tools(reply) is None or has_announced(reply):
        return reply
    return reply.replace(result=jsonrpc.with_member(reply.result, _PATH, b"true"))


def offer_tools(reply: Message) -> Message:
    """Return the reply with the capability of tools: where riglm has one for every list, there is always one."""
    if "capabilities" not in jsonrpc.members(reply.result) or _tools(reply) is not None:
        return reply
    return reply.replace(result=jsonrpc.with_member(reply.result, _PATH[:-1], b"{}"))


def has_announced(reply: Message) -> bool:
    """Return True if a reply to an opening request announces changes of the tool list."""
    tools = _tools(reply)
    return tools is not None and bytes(jsonrpc.members(tools).get("listChanged", b"")) == b"true"


def _tools(reply: Message) -> Raw | None:
    return jsonrpc.members(jsonrpc.members(reply.result).get("capabilities", b"{}")).get("tools")
