"""A channel: a two-way line of whole messages to one server, over pipes or over HTTP with SSE."""

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message
from riglm.domain.rawjson import EDGE, ID, ID_AT_END, VERSION
from riglm.domain.upstream import FRAMED_BY_HEADERS, FRAMED_OVER_LINES

_log: Final = logging.getLogger("riglm.upstream")


class MessageChannel(Protocol):
    """Carries whole messages to one server."""

    def write(self, message: Message) -> None:
        """Send one message; a channel that closed ignores it.

        Raises:
            UpstreamUnavailableError: the server does not take what waits for it already; this message is not kept.
        """

    def hand_over(self, receiver: "Receiver") -> None:
        """Pass what comes back to another receiver from now on."""

    async def close(self) -> None:
        """Close, and end what holds the other side."""


class Receiver(Protocol):
    """Receives what comes back over a channel."""

    def received(self, message: Message) -> None:
        """Called with each message of the server."""

    def missed(self, words: str, key: bytes | None = None) -> None:
        """A response was lost because of `words`: that to the request with this key, or to any if there is none."""

    def ended(self, words: str) -> None:
        """The channel is closed, for the reason in `words`. Called once, unless riglm closed it."""


class NullReceiver(Receiver):
    """Ignores what comes back over a channel that is not used any more."""

    def received(self, message: Message) -> None:
        return

    def missed(self, words: str, key: bytes | None = None) -> None:
        return

    def ended(self, words: str) -> None:
        return


def report_unreadable(line: bytes, error: jsonrpc.MalformedMessageError, receiver: Receiver, upstream: str) -> None:
    """Log a line that is no message, which is skipped; a response that cannot be read fails its request."""
    about = {"upstream": upstream, "bytes": len(line), **({"framing": found} if (found := _framing(line)) else {})}
    _log.warning("skipped a line that is no message", extra=about)
    key = answered_id(line, line)
    if key is not None:
        receiver.missed(f"sent an unreadable answer: {error}", key)


_HEADER: Final = re.compile(rb"(?:^|\})\s*content-(?:length\s*:\s*\d+|type\s*:.*)\s*$", re.IGNORECASE)
_MAX_HEADER_LENGTH: Final = 100
_PART: Final = re.compile(rb'\s*\{?\s*"(?:jsonrpc|id|method|params|result|error)"\s*:')


def _framing(line: bytes) -> str:
    """Return how a server frames its messages, if a line shows that it is not one message a line; else nothing."""
    if _HEADER.search(line[-_MAX_HEADER_LENGTH:]):
        return FRAMED_BY_HEADERS
    return FRAMED_OVER_LINES if _PART.match(line) and jsonrpc.plain(line) is None else ""


Opener = Callable[[Receiver], Awaitable[MessageChannel]]
"""Opens a channel; raises `UpstreamUnavailableError` when that fails."""


_START: Final = rb"\s*\{\s*(?:%b\s*,\s*)?(?:%b\s*,\s*)?(?:%b\s*,\s*)?" % (VERSION, ID, VERSION)
_AT_START: Final = re.compile(_START + rb'"(?:result|error)"\s*:')
_METHOD: Final = re.compile(_START + rb'"method"\s*:')


def answered_id(head: bytes, tail: bytes) -> bytes | None:
    """The key of the request that a damaged message answers, read from its first and last bytes.

    Servers write the id next to the version, either before the result or after it; an id elsewhere is not the
    message's own. None when there is none to be found, or the message is no answer.
    """
    if not_an_answer(head):
        return None
    found = _AT_START.match(head[:EDGE])
    if found is None or found[1] is None:
        found = ID_AT_END.search(tail[-EDGE:])
    return jsonrpc.id_key(found[1]) if found else None


def not_an_answer(head: bytes) -> bool:
    """Whether the first bytes of a message show that it is a request or a notification of the server."""
    return _METHOD.match(head[:EDGE]) is not None
