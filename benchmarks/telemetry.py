"""What telling of itself costs riglm: metrics and traces at each call, and a scrape of all metrics."""

import statistics
import time
from collections.abc import Callable, Sequence
from uuid import uuid4

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from rich.console import Console
from rich.table import Table

from riglm.adapters.telemetry.metrics import PrometheusMetrics
from riglm.adapters.telemetry.tracing import OpenTelemetryTracer
from riglm.application.proxy.parts import ProxyParts
from riglm.application.proxy.proxy_service import ProxyService
from riglm.application.sessions.registry import IdentificationSettings, SessionRegistry
from riglm.application.tracking.recorder import QueueItem
from riglm.application.tracking.tracking_service import TrackingService
from riglm.domain import jsonrpc
from riglm.domain.hashing import KeyedHasher
from riglm.domain.invocation import DiscoveryMethod, ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.domain.session import ProtocolEra, Transport
from riglm.domain.upstream import UpstreamHealth, UpstreamSpec
from riglm.ports.downstream import Caller, ClientChannel, ClientResponseSink
from riglm.ports.telemetry import MeterPort, MetricSources, RecordCounts, TracerPort
from riglm.ports.upstream import ServerMessageHandler, UpstreamLink, UpstreamPort, UpstreamRequest

ROUNDS = 7
SESSION = uuid4()
CALLS = 20_000
SCRAPES = 50
LINE = (
    b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"search_issues","arguments":'
    b'{"owner":"octo","repo":"hello","query":"is:open label:bug","page":2}}}'
)
RESULT = b'{"content":[{"type":"text","text":"none"}]}'


class _Nowhere(ClientResponseSink, ClientChannel):
    """A client that takes whatever comes."""

    def related(self, message: Message) -> None:
        pass

    def replied(self, message: Message, status: int = 200) -> None:
        pass

    def push(self, message: Message) -> bool:
        return True


class _Link(UpstreamLink):
    """A way to a server that answers whenever it is told to."""

    def __init__(self, spec: UpstreamSpec) -> None:
        self.spec = spec
        self.waiting: UpstreamRequest | None = None

    def request(self, message: Message, reply: UpstreamRequest) -> None:
        self.waiting = reply

    def send(self, message: Message) -> None:
        pass

    def cancel(self, reply: UpstreamRequest, notice: Message | None) -> None:
        pass

    def listen(self, *, listening: bool) -> None:
        pass

    async def close(self) -> None:
        pass


class _Server(UpstreamPort):
    """A server in memory."""

    def __init__(self) -> None:
        self.spec = UpstreamSpec(name="github", kind="stdio", command=("github",))
        self.link = _Link(self.spec)

    def connect(self, message_handler: ServerMessageHandler, principal: str = "") -> UpstreamLink:
        return self.link

    def stateless(self, message_handler: ServerMessageHandler) -> UpstreamLink:
        return self.link

    def supports(self, era: ProtocolEra) -> bool | None:
        return True

    def learned(self, era: ProtocolEra, *, supported: bool) -> None:
        pass

    def health(self) -> UpstreamHealth:
        return UpstreamHealth(name="github", state="open")

    async def close(self) -> None:
        pass


class _Sink:
    """Takes records and keeps none."""

    def put(self, item: QueueItem, size: int) -> None:
        pass


class _Exporter(SpanExporter):
    """Takes spans and keeps none."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def proxy(server: _Server, meter: MeterPort | None, tracer: TracerPort | None) -> ProxyService:
    """All that a call passes inside riglm, without wires and records."""
    hasher = KeyedHasher(bytes(32))
    tracking = TrackingService(_Sink().put, hasher, "hash", meter=meter)
    sessions = SessionRegistry(tracking, hasher, IdentificationSettings())
    return ProxyService(ProxyParts(tracking=tracking, sessions=sessions, meter=meter, tracer=tracer), [server])


def call_cost(meter: MeterPort | None, tracer: TracerPort | None) -> float:
    """Microseconds of a call through the inside of riglm, the least of several rounds."""
    server, client = _Server(), _Nowhere()
    connection = proxy(server, meter, tracer).connect(Caller(transport=Transport.STDIO), client, client)
    rounds = []
    for _ in range(ROUNDS):
        start = time.thread_time()
        for number in range(CALLS):
            connection.receive_line(LINE % number)
            waiting = server.link.waiting
            if waiting is not None:
                waiting.replied(jsonrpc.result(b"%d" % number, RESULT))
        rounds.append((time.thread_time() - start) / CALLS * 1e6)
    return min(rounds)


COUNTS = RecordCounts(
    accepted=10,
    stored=10,
    queued=0,
    spooled=0,
    dropped=0,
    recovered=0,
    reasons=dict.fromkeys(("full", "refused", "damaged", "closed"), 0),
)


def scrape_cost(servers: int, accept: str) -> tuple[float, int]:
    """Milliseconds of processor time of a scrape, the median, and its lines."""
    names = [f"server-{number}" for number in range(servers)]
    metrics = PrometheusMetrics(names, lambda: "1")
    metrics.read_from(
        MetricSources(
            records=lambda: COUNTS,
            upstreams=lambda: [UpstreamHealth(name=name, state="open") for name in names],
            sessions=lambda: 5,
            embedder=lambda: None,
        )
    )
    for name in names:
        for kind in (None, *ErrorKind):
            for found in DiscoveryMethod:
                metrics.called(SESSION, "read", name, found, kind, 0.01)
    costs = []
    for _ in range(SCRAPES):
        start = time.thread_time()
        body, _ = metrics.scrape(accept)
        costs.append((time.thread_time() - start) * 1000)
    return statistics.median(costs), body.count(b"\n")


def main() -> None:
    console = Console()
    calls = Table(title="A call inside riglm, without wires and records", title_justify="left")
    for column in ("", "µs", "more"):
        calls.add_column(column, justify="left" if not column else "right")
    plain = call_cost(None, None)
    metrics = PrometheusMetrics(["github"], lambda: "1")
    measured: list[tuple[str, Callable[[], float]]] = [("metrics", lambda: call_cost(metrics, None))]
    calls.add_row("neither metrics nor traces", f"{plain:.2f}", "")
    with OpenTelemetryTracer(lambda: "1", _Exporter) as tracer:
        measured += [("traces", lambda: call_cost(None, tracer)), ("both", lambda: call_cost(metrics, tracer))]
        for name, measure in measured:
            cost = measure()
            calls.add_row(name, f"{cost:.2f}", f"{cost - plain:.2f}")
    console.print(calls)
    scrapes = Table(title="A scrape, in its own thread", title_justify="left")
    for column in ("servers", "format", "ms", "lines"):
        scrapes.add_column(column, justify="right")
    for servers in (1, 5, 20):
        for accept, name in (("text/plain", "text"), ("application/openmetrics-text", "OpenMetrics")):
            cost, lines = scrape_cost(servers, accept)
            scrapes.add_row(str(servers), name, f"{cost:.2f}", str(lines))
    console.print(scrapes)


if __name__ == "__main__":
    main()
