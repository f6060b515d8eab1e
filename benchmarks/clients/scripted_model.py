"""A model on loopback that calls the tools that it was told to, then says one word, and remembers what it was asked."""

import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self

_WORD = {"type": "text", "text": "done"}

Call = tuple[str, dict[str, Any]]
"""The name of a tool as the client tells the model, and its arguments."""


class ScriptedModel:
    """Answers the Messages API on a port of its own; use with `with`.

    In each conversation that it is given tools for, it makes the calls one after the other, each when the one before
    has its result.
    """

    def __init__(self, calls: Sequence[Call] = ()) -> None:
        asked: list[dict[str, Any]] = []

        class Handler(_Answers):
            requests = asked
            script = tuple(calls)

        self.requests = asked
        """The bodies of all requests for a message, in order."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    requests: ClassVar[list[dict[str, Any]]]
    script: ClassVar[tuple[Call, ...]]

    def do_GET(self) -> None:
        """Everything but messages is empty."""
        self._send(b"{}")

    def do_POST(self) -> None:
        """Make the next call, or say the word."""
        asked = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        if not self.path.partition("?")[0].endswith("/v1/messages"):
            self._send(b'{"input_tokens":1}')
            return
        self.requests.append(asked)
        number = len(self.requests)
        block = self._next(asked)
        reason = "end_turn" if block is _WORD else "tool_use"
        message = {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": asked.get("model", ""),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        if asked.get("stream"):
            self._send(_events(message, block, reason), "text/event-stream")
        else:
            self._send(json.dumps({**message, "content": [block], "stop_reason": reason}).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class has it so
        """Nobody reads it."""

    def _next(self, asked: dict[str, Any]) -> dict[str, Any]:
        made = _results(asked)
        if not asked.get("tools") or made >= len(self.script):
            return _WORD
        name, arguments = self.script[made]
        return {"type": "tool_use", "id": f"toolu_{id(self.requests):x}_{made}", "name": name, "input": arguments}

    def _send(self, body: bytes, kind: str = "application/json") -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _results(asked: dict[str, Any]) -> int:
    """How many calls of the conversation have their result."""
    contents = (message["content"] for message in asked["messages"] if isinstance(message["content"], list))
    return sum(block.get("type") == "tool_result" for blocks in contents for block in blocks)


def _events(message: dict[str, Any], block: dict[str, Any], reason: str) -> bytes:
    if block["type"] == "text":
        empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
    else:
        empty = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    return b"".join(b"event: %b\ndata: %b\n\n" % (one["type"].encode(), json.dumps(one).encode()) for one in events)
