"""A model on loopback that says one word to everything, and remembers what it was asked."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

_BLOCK = {"type": "text", "text": "done"}


class ScriptedModel:
    """Answers the Messages API on a port of its own; use with `with`."""

    def __init__(self) -> None:
        asked: list[dict[str, Any]] = []

        class Handler(_Answers):
            requests = asked

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
    requests: list[dict[str, Any]]

    def do_GET(self) -> None:
        """Everything but messages is empty."""
        self._send(b"{}")

    def do_POST(self) -> None:
        """Say the word."""
        asked = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        if not self.path.partition("?")[0].endswith("/v1/messages"):
            self._send(b'{"input_tokens":1}')
            return
        self.requests.append(asked)
        message = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": asked.get("model", ""),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        if asked.get("stream"):
            self._send(_events(message), "text/event-stream")
        else:
            self._send(json.dumps({**message, "content": [_BLOCK], "stop_reason": "end_turn"}).encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class has it so
        """Nobody reads it."""

    def _send(self, body: bytes, kind: str = "application/json") -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _events(message: dict[str, Any]) -> bytes:
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": _BLOCK["text"]}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    return b"".join(b"event: %b\ndata: %b\n\n" % (one["type"].encode(), json.dumps(one).encode()) for one in events)
