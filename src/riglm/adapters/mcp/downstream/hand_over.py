"""Gives the lines of a client to its connection, so that no failure inside riglm leaves a request without an answer."""

import contextlib
import logging

from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Malformed
from riglm.ports.downstream import ClientConnection, ReplySink

_log = logging.getLogger("riglm.downstream")


def hand_over(line: bytes, connection: ClientConnection, sink: ReplySink) -> None:
    """Hand a line over; a request that could not be taken is answered with an error at `sink`."""
    try:
        connection.received(line)
    except Exception:  # noqa: BLE001  # whoever asked must be told, whatever went wrong
        _log.exception("a message failed inside riglm")
        with contextlib.suppress(Malformed):
            message = jsonrpc.decode(line)
            if message.is_request:
                words = "Internal error: riglm's log says more"
                sink.replied(jsonrpc.error(message.id, jsonrpc.INTERNAL_ERROR, words))
