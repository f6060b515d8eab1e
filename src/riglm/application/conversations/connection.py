"""A client on a channel that carries both eras: the era is decided for each request by itself."""

import logging

from riglm.domain import jsonrpc, parameters
from riglm.domain.jsonrpc import Malformed, Message
from riglm.ports.downstream import (
    Caller,
    ClientChannel,
    ClientConnection,
    Conversation,
    DownstreamPort,
    ReplySink,
    Underway,
)

_log = logging.getLogger("riglm.proxy")


class Connection(ClientConnection):
    """Reads a client's lines and hands each message to whom it concerns."""

    def __init__(self, proxy: DownstreamPort, caller: Caller, channel: ClientChannel, sink: ReplySink) -> None:
        """A connection whose every answer goes to `sink`."""
        self._proxy = proxy
        self._arrived = proxy.arrived
        self._caller = caller
        self._channel = channel
        self._sink = sink
        self._conversation: Conversation | None = None
        self._modern: dict[bytes, Underway] = {}
        self._owed: list[Underway] = []

    @property
    def owes(self) -> bool:
        """Whether the client asked something that is not answered yet; a subscription has no answer to wait for."""
        return not all(one.done for one in self._owed)

    def received(self, line: bytes) -> None:
        """Take one message; what is none is answered with an error, and so is what riglm fails at."""
        if self._arrived is not None:
            self._arrived()
        try:
            message = jsonrpc.decode(line)
        except Malformed as error:
            self._sink.replied(jsonrpc.error(error.id, error.code, str(error)))
            return
        try:
            self._take(message)
        except Exception:  # noqa: BLE001  # fails open
            _log.exception("a message failed inside riglm")
            if message.is_request:
                words = "Internal error in riglm: its log says more"
                self._sink.replied(jsonrpc.error(message.id, jsonrpc.INTERNAL_ERROR, words))

    def _take(self, message: Message) -> None:
        if message.is_request:
            envelope = parameters.envelope(message)
            if envelope is not None:
                self._asked(message, envelope)
                return
        elif message.method == "notifications/cancelled" and self._modern:
            exchange = self._modern.pop(parameters.cancelled_id(message) or b"", None)
            if exchange is not None:
                self._proxy.modern.cancel(exchange, message)
                return
        if self._conversation is None:
            if not message.is_request:
                self._proxy.modern.told(message)
                return
            self._conversation = self._proxy.converse(self._caller, self._channel)
        underway = self._conversation.received(message, self._sink)
        if underway is not None and not underway.done:
            self._owe(underway)
        if message.method == "notifications/initialized":
            self._conversation.listen(listening=True)

    async def close(self) -> None:
        """The client is gone."""
        for exchange in list(self._modern.values()):
            self._proxy.modern.cancel(exchange)
        if self._conversation is not None:
            await self._conversation.close()

    def _asked(self, message: Message, envelope: parameters.Envelope) -> None:
        key = jsonrpc.id_key(message.id or b"null")
        self._modern = {key: one for key, one in self._modern.items() if not one.done}
        if key in self._modern:
            words = "Invalid request: the id is in use"
            self._sink.replied(jsonrpc.error(message.id, jsonrpc.INVALID_REQUEST, words))
            return
        underway = self._proxy.modern.received(message, envelope, self._sink, self._caller)
        if not underway.done:
            self._modern[key] = underway
            if message.method != "subscriptions/listen":
                self._owe(underway)

    def _owe(self, underway: Underway) -> None:
        self._owed = [one for one in self._owed if not one.done]
        self._owed.append(underway)
