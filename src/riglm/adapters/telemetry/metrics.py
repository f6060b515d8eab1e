"""Prometheus metrics, counted by `prometheus_client`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Final, TypeVar
from uuid import UUID

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from riglm.domain.exposure import SEARCH_SURFACE, Exposure, Mode, TokenTally
from riglm.domain.invocation import OWN_UPSTREAM, USES, DiscoveryMethod, ErrorKind
from riglm.domain.list_plan import Prices
from riglm.domain.session import Session
from riglm.domain.session_cost import SessionCost
from riglm.domain.tool_pin import ToolChange, ToolPin
from riglm.domain.upstream import UpstreamHealth
from riglm.ports.embedder import EmbedderStatus
from riglm.ports.telemetry import MeterPort, MetricSources, RecordCounts

PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

REFUSED: Final = "_none"
"""The upstream of calls that went to none: their tool is denied, or does not exist."""

OTHER: Final = "_other"
"""The upstream of all those that the configuration does not know; no server's name begins so."""

_DURATION: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_HELD: Final = (0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5)
_PREDICTED: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5)
_TOOLS: Final = (0.0, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 80.0, 128.0, 256.0, 512.0, 1024.0)
_SEARCHES: Final = (0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
_MODES: Final[tuple[Mode, ...]] = ("enforce", "shadow", "off")
_ARMS: Final = ("riglm", "no_proxy", "host_search")
_LINK_STATES: Final = ("idle", "opening", "open", "broken")
_EMBEDDER_STATES: Final = ("not_loaded", "loading", "ready", "unavailable")
_TOKENS: Final = {
    "shown": "Estimated tokens of the definitions in new lists.",
    "hidden": "Estimated tokens of the definitions that new lists left out.",
    "meta_tools": "Estimated tokens of the meta-tools in new lists, and of results of searches and contexts.",
    "resent": "Estimated tokens of the lists that were sent because a list had changed.",
}

_RECORDS: Final = {
    "accepted": "Records taken: the sum of those stored, queued, spooled and dropped.",
    "stored": "Records in the store.",
    "recovered": "Records among those taken that ended processes left on disk.",
}

disable_created_metrics()  # type: ignore[no-untyped-call]  # a sample for the start of each counter adds nothing


class PrometheusMetrics(MeterPort):
    """Counts on the event loop, and returns the counts to a scrape on any thread.

    Labels are bounded: servers by the names configured, and nothing that clients or servers choose.
    """

    def __init__(self, upstreams: Iterable[str], version: Callable[[], str]) -> None:
        """Metrics of a riglm of this `version`, in front of servers with these names."""
        servers = tuple(upstreams)
        self._upstreams = {name: name for name in (*servers, OWN_UPSTREAM)} | {"": REFUSED}
        self._prices: Callable[[], Prices] = Prices
        self._costs: dict[UUID, SessionCost] = {}
        self._searches_by_session: dict[UUID, int] = {}
        self._tokens_by_mode: dict[Mode, TokenTally] = {mode: TokenTally() for mode in _MODES}
        self._registry = registry = CollectorRegistry(auto_describe=False)
        self._current = _CurrentValues(version, self._tokens_by_mode)
        registry.register(self._current)
        for standard in (ProcessCollector, PlatformCollector, GCCollector):
            standard(registry=registry)
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        self._calls = counter(
            "riglm_calls",
            "Tool calls that ended, by server, by how the client came to know the tool, and by how they ended.",
            ("upstream", "found", "outcome"),
        )
        self._errors = counter(
            "riglm_call_errors", "Tool calls that did not succeed, by server and kind.", ("upstream", "kind")
        )
        self._durations = histogram(
            "riglm_call_duration_seconds",
            "How long tool calls took, from the request to the end of the call.",
            ("upstream",),
            buckets=_DURATION,
        )
        self._overhead = histogram(
            "riglm_call_overhead_seconds",
            "What riglm itself took of calls that a server answered: until the request was on its way there, and from "
            "the answer's arrival until that was on its way to the client.",
            ("upstream",),
            buckets=_HELD,
        )
        self._hits = counter(
            "riglm_hit_rate_calls",
            "Tools of servers that were used while the list hid something, by result: hit, the tool was in the list "
            "or riglm suggested it; missed, it was not in the list. Names that no server lists do not count. In the "
            "mode shadow, what would have been.",
            ("mode", "result"),
        )
        self._shown = histogram(
            "riglm_list_shown_tools",
            "Tools in each new list of a session; in the mode shadow, what it would have had.",
            ("mode",),
            buckets=_TOOLS,
        )
        self._available = histogram(
            "riglm_list_available_tools",
            "Tools that there were for each new list: the reduction is one less the ratio of the two sums.",
            ("mode",),
            buckets=_TOOLS,
        )
        self._changes = counter(
            "riglm_list_changes", "Lists that differ from the one that the session was shown before.", ("mode",)
        )
        self._price = counter(
            "riglm_price_tokens",
            "Price of the model requests of ended sessions, in tokens of uncached input: through riglm, with no proxy, "
            "and with the tool search of a host. With preload hints, no proxy means that search. In the mode shadow, "
            "what would have been paid.",
            ("mode", "arm"),
        )
        self._sessions = counter("riglm_sessions", "Sessions that began.", ("era", "transport"))
        self._searches = counter("riglm_searches", "Searches that were answered.")
        self._session_searches = histogram(
            "riglm_session_searches",
            "Searches in each session that has ended and was shown a list; fewer are better.",
            buckets=_SEARCHES,
        )
        self._list_overhead = histogram(
            "riglm_list_overhead_seconds",
            "What riglm itself took of tool lists: from the arrival of the servers' last page until the list was on "
            "its way to the client.",
            buckets=_PREDICTED,
        )
        self._tool_changes = counter(
            "riglm_tool_changes",
            "Tools that this process found to be other than approved, by server: changed, or added.",
            ("upstream", "change"),
        )
        self._predictions = histogram("riglm_prediction_seconds", "How long predictions took.", buckets=_PREDICTED)
        # looking up a child by its labels costs several times what counting does
        self._call = cache(self._calls.labels)
        self._duration = cache(self._durations.labels)
        self._held = cache(self._overhead.labels)
        self._hit = cache(self._hits.labels)
        self._begin_at_zero(servers)

    def _begin_at_zero(self, servers: Sequence[str]) -> None:
        """Report what can be counted before it is, so that rates begin with the first event."""
        for server in servers:
            self._durations.labels(server)
            self._overhead.labels(server)
            for found in DiscoveryMethod:
                self._calls.labels(server, found.value, "success")
            for kind in ErrorKind:
                self._errors.labels(server, kind.value)
            for change in ToolChange:
                self._tool_changes.labels(server, change.value)
        for mode in _MODES:
            for family in (self._shown, self._available, self._changes):
                family.labels(mode)
            for result in ("hit", "missed"):
                self._hits.labels(mode, result)
            for arm in _ARMS:
                self._price.labels(mode, arm)

    def read_from(self, readings: MetricSources) -> None:
        """Report `readings` as well, from now on."""
        self._current.readings = readings
        self._prices = readings.prices

    def called(
        self,
        session_id: UUID,
        tool: str,
        upstream: str,
        found: DiscoveryMethod,
        error_kind: ErrorKind | None,
        seconds: float,
        mode: Mode = "off",
        is_hit: bool | None = None,
    ) -> None:
        name = self._upstreams.get(upstream, OTHER)
        self._call(name, found.value, "success" if error_kind is None else error_kind.value).inc()
        self._duration(name).observe(seconds)
        if error_kind is not None:
            self._errors.labels(name, error_kind.value).inc()
        if error_kind in USES and upstream not in {"", OWN_UPSTREAM}:
            if is_hit is not None:
                self._hit(mode, "hit" if is_hit else "missed").inc()
            if session_id in self._costs:
                self._costs[session_id].called(tool)

    def held(self, upstream: str, seconds: float) -> None:
        self._held(self._upstreams.get(upstream, OTHER)).observe(seconds)

    def exposed(self, exposure: Exposure, *, changed: bool) -> None:
        mode, session_id = exposure.mode, exposure.session_id
        self._tokens_by_mode[mode].add(exposure, changed=changed)
        if session_id not in self._costs:
            self._costs[session_id] = SessionCost(self._prices())
        self._costs[session_id].shown(exposure)
        if exposure.surface == SEARCH_SURFACE:
            self._searches.inc()
            self._searches_by_session[session_id] = self._searches_by_session.get(session_id, 0) + 1
        elif exposure.is_list:
            self._searches_by_session.setdefault(session_id, 0)
            self._shown.labels(mode).observe(len(exposure.shown))
            self._available.labels(mode).observe(len(exposure.shown) + len(exposure.hidden))
            self._changes.labels(mode).inc(changed)

    def listed(self, seconds: float) -> None:
        self._list_overhead.observe(seconds)

    def tool_changed(self, pin: ToolPin) -> None:
        """Count a tool that is not as it was approved."""
        if pin.change is not None:
            self._tool_changes.labels(pin.server, pin.change.value).inc()

    def predicted(self, seconds: float) -> None:
        self._predictions.observe(seconds)

    def session_opened(self, session: Session) -> None:
        self._sessions.labels(session.era.value, session.transport.value).inc()

    def session_closed(self, session_id: UUID, *, ended: bool) -> None:
        searches, price = self._searches_by_session.pop(session_id, None), self._costs.pop(session_id, None)
        if searches is not None and ended:
            self._session_searches.observe(searches)
        cost = price.finish() if price is not None and ended else None
        if price is not None and cost is not None:
            for arm in _ARMS:
                self._price.labels(price.mode, arm).inc(getattr(cost, arm))

    def families(self) -> Iterator[Metric]:
        """Return riglm's metrics, without those of the process."""
        return (family for family in self._registry.collect() if family.name.startswith("riglm_"))

    def scrape(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics and their content type: OpenMetrics if accepted, otherwise the format of Prometheus."""
        if OPENMETRICS.partition(";")[0] in accept.lower():
            return openmetrics.generate_latest(self._registry), OPENMETRICS  # type: ignore[no-untyped-call]
        return generate_latest(self._registry), PLAIN


class _CurrentValues(Collector):
    """What is read at a scrape: tokens, and the values of `MetricSources`."""

    readings: MetricSources | None = None

    def __init__(self, version: Callable[[], str], tokens: dict[Mode, TokenTally]) -> None:
        self._version = version
        self._tokens = tokens

    def collect(self) -> Iterator[Metric]:
        """Return riglm's metrics that are not counted, each with its current samples."""
        yield InfoMetricFamily("riglm_build", "Which riglm this is.", value={"version": self._version()})
        for name, description in _TOKENS.items():
            samples = [((mode,), float(getattr(tally, name))) for mode, tally in self._tokens.items()]
            yield _labeled(CounterMetricFamily(f"riglm_tokens_{name}", description, labels=("mode",)), samples)
        net = GaugeMetricFamily(
            "riglm_tokens_net",
            "Estimated tokens saved so far: those hidden, less those of meta-tools and those sent again. In the mode "
            "shadow, what would have been saved.",
            labels=("mode",),
        )
        yield _labeled(net, [((mode,), tally.net) for mode, tally in self._tokens.items()])
        if self.readings is not None:
            yield from _record_metrics(self.readings.records())
            if self.readings.archived is not None:
                yield from _archive_metrics(self.readings.archived())
            yield from _upstream_metrics(self.readings.upstreams())
            live = self.readings.sessions()
            yield GaugeMetricFamily("riglm_sessions_live", "Sessions that may still grow.", value=live)
            status = self.readings.embedder()
            if status is not None:
                yield from _embedder_metrics(status)


_Family = TypeVar("_Family", CounterMetricFamily, GaugeMetricFamily)


def _labeled(family: _Family, samples: Iterable[tuple[Sequence[str], float]]) -> _Family:
    """Return a family with these values, each by the values of its labels."""
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _record_metrics(counts: RecordCounts) -> Iterator[Metric]:
    """Return the counts of one instant: accepted = stored + queued + spooled + dropped."""
    for name, description in _RECORDS.items():
        yield CounterMetricFamily(f"riglm_records_{name}", description, value=getattr(counts, name))
    yield GaugeMetricFamily("riglm_records_queued", "Records that wait in memory.", value=counts.queued)
    yield GaugeMetricFamily("riglm_records_spooled", "Records that wait on disk.", value=counts.spooled)
    yield GaugeMetricFamily("riglm_spool_bytes", "What the records on disk take there.", value=counts.spool_bytes)
    dropped = CounterMetricFamily(
        "riglm_records_dropped",
        "Records lost, by reason: the queue was full, the store refused them, they were damaged, or riglm ended.",
        labels=("reason",),
    )
    yield _labeled(dropped, [((reason,), count) for reason, count in counts.reasons.items()])


def _archive_metrics(sent: RecordCounts) -> Iterator[Metric]:
    waiting, dropped = sent.queued + sent.spooled, sent.dropped
    yield GaugeMetricFamily("riglm_clickhouse_records_waiting", "Records to send to ClickHouse.", value=waiting)
    yield CounterMetricFamily("riglm_clickhouse_records_dropped", "Records not sent to ClickHouse.", value=dropped)


def _upstream_metrics(found: Sequence[UpstreamHealth]) -> Iterator[Metric]:
    """The links to the servers."""
    description = "Condition of each server: 1 for its state, 0 for the others."
    states = [((one.name, state), float(one.state == state)) for one in found for state in _LINK_STATES]
    yield _labeled(GaugeMetricFamily("riglm_upstream_state", description, labels=("upstream", "state")), states)
    since = GaugeMetricFamily(
        "riglm_upstream_state_since_timestamp_seconds",
        "When the state of the way to each server began, in seconds since the epoch.",
        labels=("upstream",),
    )
    yield _labeled(since, [((one.name,), one.since) for one in found])


def _embedder_metrics(status: EmbedderStatus) -> Iterator[Metric]:
    """The embedder, where there is one."""
    description = "Condition of the embedder: 1 for its state, 0 for the others."
    states = [((state,), float(status.status == state)) for state in _EMBEDDER_STATES]
    yield _labeled(GaugeMetricFamily("riglm_embedder_state", description, labels=("state",)), states)
    description, is_active = "Whether hashed words replace the configured model.", float(status.is_fallback_active)
    yield GaugeMetricFamily("riglm_embedder_fallback_active", description, value=is_active)
    used = {"provider": status.actual_provider, "model": status.actual_model, "quality": status.semantic_quality}
    yield InfoMetricFamily("riglm_embedder", "The embedder that is used.", value=used)
