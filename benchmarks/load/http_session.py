"""One client over HTTP, on a connection of its own that stays open."""

import select
import socket
import time
from typing import Any

import httptools

from benchmarks.load.message import INITIALIZE, Answer, NoAnswer, notification, parse, request

_SECONDS = 60.0
clock = time.perf_counter


class HttpSession:
    """Speaks the wire by hand, so that its own cost stays at a few tens of microseconds a call."""

    def __init__(self, port: int) -> None:
        """A session that is not open yet."""
        self.port = port
        self.socket: socket.socket | None = None
        self.sent_at = 0.0
        self.last_id = 0
        self._id = ""
        self._version = ""
        self._head = self._build()
        self.is_answered = False
        self._stays = True
        self._headers: dict[bytes, bytes] = {}
        self._parts: list[bytes] = []
        self._parser: Any = None
        self._poll = select.poll()

    def open(self) -> None:
        """Shake hands.

        Raises:
            NoAnswer: the other side refused, or is gone.
            OSError: it cannot be reached.
        """
        result = self.ask("initialize", INITIALIZE)[1].content()
        self._id = self._headers.get(b"mcp-session-id", b"").decode()
        self._version = result["protocolVersion"]
        self._head = self._build()
        self._exchange("POST", notification("notifications/initialized"))

    def beside(self, number: int) -> "HttpSession":
        """Another connection of the same session, with ids that no other `number` has."""
        other = HttpSession(self.port)
        other.last_id = number * 1_000_000
        other._id, other._version = self._id, self._version
        other._head = other._build()
        return other

    def ask(self, method: str, params: Any) -> tuple[float, Answer, int]:
        """The seconds from the last byte sent to the last byte of the answer, the answer, and its bytes.

        Raises:
            NoAnswer: none came.
        """
        self.last_id += 1
        took = self._exchange("POST", request(method, params, self.last_id))
        answer, size = self.answer()
        return took, answer, size

    def delete(self) -> None:
        """Close the session politely."""
        self._exchange("DELETE", b"")

    def close(self) -> None:
        """Close the connection, and say nothing."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def send(self, verb: str, body: bytes) -> None:
        """Send a request; connect first if need be, or if the other side has closed meanwhile."""
        self.is_answered = False
        self._headers.clear()
        self._parts.clear()
        if self.socket is not None and self._poll.poll(0):
            self.close()
        if self.socket is None:
            self._parser = httptools.HttpResponseParser(self)
            self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=_SECONDS)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._poll = select.poll()
            self._poll.register(self.socket, select.POLLIN)
        data = b"%s%s%d\r\n\r\n%s" % (verb.encode(), self._head, len(body), body)
        self.sent_at = clock()
        self.socket.sendall(data)

    def read(self) -> None:
        """Take what has come; `is_answered` tells whether the answer is whole.

        Raises:
            NoAnswer: the connection ended before.
        """
        assert self.socket is not None
        data = self.socket.recv(1 << 20)
        if not data:
            self.close()
            raise NoAnswer("the connection ended")
        self._parser.feed_data(data)
        if self.is_answered and not self._stays:
            self.close()

    def answer(self) -> tuple[Answer, int]:
        """What was answered, plain or as an event.

        Raises:
            NoAnswer: it is no message.
        """
        body = b"".join(self._parts)
        if not self._headers.get(b"content-type", b"").startswith(b"text/event-stream"):
            if not body:
                raise NoAnswer(f"HTTP {self._parser.get_status_code()} without a body")
            return parse(body), len(body)
        for line in body.splitlines():
            if line.startswith(b"data:") and (data := line[5:].strip()):
                message = parse(data)
                if message.method is None:
                    return message, len(data)
        raise NoAnswer("a stream without an answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser has a header."""
        self._headers[name.lower()] = value

    def on_body(self, data: bytes) -> None:
        """The parser has a part of the body."""
        self._parts.append(data)

    def on_message_complete(self) -> None:
        """The parser has all."""
        self.is_answered = True
        self._stays = self._parser.should_keep_alive()

    def _exchange(self, verb: str, body: bytes) -> float:
        self.send(verb, body)
        while not self.is_answered:
            self.read()
        return clock() - self.sent_at

    def _build(self) -> bytes:
        lines = [
            " /mcp HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            *([f"Mcp-Session-Id: {self._id}"] if self._id else []),
            *([f"MCP-Protocol-Version: {self._version}"] if self._version else []),
            "Content-Length: ",
        ]
        return "\r\n".join(lines).encode()
