"""A channel: a two-way line of whole messages to one server, over pipes or over HTTP with SSE."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from riglm.domain import jsonrpc
from riglm.domain.errors import UpstreamUnavailableError
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.rawjson import EDGE, ID, ID_AT_END, VERSION
from riglm.domain.upstream import FRAMED_BY_HEADERS, FRAMED_OVER_LINES

_log: Final = logging.getLogger("riglm.upstream")


class MessageChannel(Protocol):
    """Carries whole messages to one server."""

    def write(self, line: bytes) -> None:
        """Send one message; a channel that closed ignores it.

        Raises:
            UpstreamUnavailableError: the server does not take what waits for it already; this message is not kept.
        """

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


_AGAIN: Final = b'"riglm-again"'
_REPEATED: Final = frozenset({"logging/setLevel", "resources/subscribe"})
NOTED: Final = frozenset({"initialize", "resources/unsubscribe"}) | _REPEATED
"""Requests whose success is passed to `HandshakeReplay.answered`."""


class HandshakeReplay:
    """The handshake, the log level and the subscriptions, in the client's own words."""

    def __init__(self) -> None:
        self.result: Raw | None = None
        """The answer to the handshake; None before it came."""
        self._handshake: Message | None = None
        self._repeated: dict[str, Message] = {}
        self._greeted: asyncio.Future[Message] | None = None

    def begin(self) -> None:
        """The client opens a handshake: what was sent before is discarded."""
        self.result = None
        self._handshake = None
        self._repeated.clear()

    def answered(self, asked: Message, answer: Message) -> None:
        """The server answered one of the `NOTED` requests; an error changes nothing."""
        if not answer.result:
            return
        if asked.method == "initialize":
            self._handshake, self.result = asked, answer.result
        elif asked.method in _REPEATED:
            self._repeated[_subject(asked)] = asked
        else:
            self.forget(_subject(asked))

    def forget(self, uri: str) -> None:
        """No client subscribes to this resource any more."""
        self._repeated.pop(uri, None)

    async def repeat(self, channel: MessageChannel, seconds: float) -> None:
        """Send all of it to a new process.

        Raises:
            UpstreamUnavailableError: it refuses the handshake.
            TimeoutError: it does not respond to the handshake in time.
        """
        if self._handshake is None:
            return
        self._greeted = asyncio.get_running_loop().create_future()
        channel.write(self._handshake.replace(id=_AGAIN).line)
        answer = await asyncio.wait_for(self._greeted, seconds)
        if not answer.result:
            raise UpstreamUnavailableError("restarted and refused the handshake")
        self.result = answer.result
        channel.write(jsonrpc.notification("notifications/initialized").line)
        for message in self._repeated.values():
            channel.write(message.replace(id=_AGAIN).line)

    def heard(self, answer: Message) -> bool:
        """Whether an answer that no client waits for is one to what was repeated."""
        if answer.id != _AGAIN:
            return False
        if self._greeted is not None and not self._greeted.done():
            self._greeted.set_result(answer)
        return True


def _subject(message: Message) -> str:
    """What must be repeated about: one resource by its URI, or the log level."""
    return jsonrpc.text(jsonrpc.members(message.params).get("uri")) or ""


def log_unawaited(upstream: str, answer: Message) -> None:
    """Log an answer that belongs to no request: its request was cancelled, or its id is wrong."""
    about = {"upstream": upstream, "id": (answer.id or b"null")[:80].decode("utf-8", "replace")}
    _log.info("ignored a response without a request", extra=about)


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
