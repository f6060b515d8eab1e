"""A collector of traces on loopback, which keeps what it is sent."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

SERVER, CLIENT = ProtoSpan.SPAN_KIND_SERVER, ProtoSpan.SPAN_KIND_CLIENT


@dataclass(frozen=True, slots=True)
class Collected:
    """One span, as it came."""

    name: str
    kind: int
    trace: str
    span: str
    parent: str
    state: str
    attributes: dict[str, str]
    resource: dict[str, str]
    failed: bool


class Collector:
    """Takes OTLP over HTTP; `hangs` makes it one that never answers."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.bodies: list[bytes] = []
        self.asked = threading.Event()
        self._detach = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.asked.set()
                if hangs:
                    collector._detach.wait(60)
                    return
                collector.bodies.append(body)
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the library's name
                """Nothing is said."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def spans(self) -> list[Collected]:
        """All spans that came."""
        return [span for body in list(self.bodies) for span in _spans(body)]

    def start(self) -> None:
        """Listen."""
        self._thread.start()

    def close(self) -> None:
        """Listen no more."""
        self._detach.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def collecting(*, hangs: bool = False) -> Iterator[Collector]:
    """A collector that listens."""
    collector = Collector(hangs=hangs)
    collector.start()
    try:
        yield collector
    finally:
        collector.close()


def _spans(body: bytes) -> Iterator[Collected]:
    asked = ExportTraceServiceRequest()
    asked.ParseFromString(body)
    for group in asked.resource_spans:
        resource = {one.key: one.value.string_value for one in group.resource.attributes}
        for scope in group.scope_spans:
            for span in scope.spans:
                yield Collected(
                    name=span.name,
                    kind=span.kind,
                    trace=span.trace_id.hex(),
                    span=span.span_id.hex(),
                    parent=span.parent_span_id.hex(),
                    state=span.trace_state,
                    attributes={one.key: one.value.string_value for one in span.attributes},
                    resource=resource,
                    failed=span.status.code == Status.STATUS_CODE_ERROR,
                )
