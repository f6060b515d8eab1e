"""A model on loopback that calls the tools that it is given, then says one word, and remembers what it was asked."""

import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self

from benchmarks.clients.dialects import Dialect, LoadedTool, ToolCall, dialect_of

Call = tuple[str, dict[str, Any]]
"""The name of a tool as the client gives it to the model, or how that name ends, and its arguments."""


class ScriptedModel:
    """Answers the APIs of four providers on a port of its own; use with `with`.

    In each conversation that it is given tools for, it makes the calls one after the other, each when the one before
    has its result.
    """

    def __init__(self, calls: Sequence[Call] = ()) -> None:
        asked: list[dict[str, Any]] = []
        loads: list[list[LoadedTool]] = []
        definitions: list[list[dict[str, Any]]] = []

        class Handler(_Answers):
            requests = asked
            loaded = loads
            tools = definitions
            script = tuple(calls)

        self.requests = asked
        """The bodies of all requests for a message, in order."""
        self.loaded = loads
        """The tools whose schemas each of these requests holds."""
        self.tools = definitions
        """The definitions of tools in each of these requests, loaded or not."""
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
    loaded: ClassVar[list[list[LoadedTool]]]
    tools: ClassVar[list[list[dict[str, Any]]]]
    script: ClassVar[tuple[Call, ...]]

    def do_GET(self) -> None:
        """Everything but messages is empty."""
        self._send(b"{}")

    def do_POST(self) -> None:
        """Make the next call, or say the word."""
        asked = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        dialect = dialect_of(self.path)
        if dialect is None:
            self._send(b'{"input_tokens":1}')
            return
        asked.setdefault("stream", "stream" in self.path)
        self.requests.append(asked)
        self.loaded.append(dialect.loaded(asked))
        self.tools.append(dialect.tools(asked))
        self._send(*dialect.answer(asked, len(self.requests), self._next(dialect, asked)))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class has it so
        """Nobody reads it."""

    def _next(self, dialect: Dialect, asked: dict[str, Any]) -> ToolCall | None:
        made = dialect.results(asked)
        if not dialect.tools(asked) or made >= len(self.script):
            return None
        name, arguments = self.script[made]
        tools = (tool for tool in dialect.loaded(asked) if tool.name.endswith(name))
        return ToolCall(next(tools, LoadedTool(name)), arguments, f"toolu_{id(self.requests):x}_{made}")

    def _send(self, body: bytes, kind: str = "application/json") -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
