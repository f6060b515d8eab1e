"""What a client of the handshake era says, and what is read of an answer."""

from typing import Any

import msgspec

VERSION = "2025-11-25"
INITIALIZE = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "benchmark", "version": "1"}}


class NoAnswer(Exception):
    """The other side closed, took too long, or answered with an error."""


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A message from the other side: an answer, or a request or notification if it has a method."""

    id: int | str | None = None
    method: str | None = None
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()

    def content(self) -> Any:
        """The decoded result.

        Raises:
            NoAnswer: it is an error.
        """
        if not bytes(self.result):
            raise NoAnswer(bytes(self.error).decode("utf-8", "replace")[:300] or "neither a result nor an error")
        return msgspec.json.decode(self.result)

    def text(self) -> str:
        """The text of a tool's result.

        Raises:
            NoAnswer: the call failed.
        """
        result = self.content()
        if result.get("isError"):
            raise NoAnswer(str(result)[:300])
        return str(result["content"][0]["text"])


_decoder = msgspec.json.Decoder(Answer)


def parse(line: bytes) -> Answer:
    """A message.

    Raises:
        NoAnswer: the line holds none.
    """
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NoAnswer(f"not a message: {line[:200]!r}") from error


def request(method: str, params: Any, request_id: int) -> bytes:
    """A request."""
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def notification(method: str) -> bytes:
    """A notification."""
    return msgspec.json.encode({"jsonrpc": "2.0", "method": method})


def echo(text: str) -> dict[str, Any]:
    """The params of a call that answers with this text."""
    return {"name": "bench_echo", "arguments": {"text": text}}


def sleep(milliseconds: int) -> dict[str, Any]:
    """The params of a call that answers so much later."""
    return {"name": "bench_sleep", "arguments": {"ms": milliseconds}}
