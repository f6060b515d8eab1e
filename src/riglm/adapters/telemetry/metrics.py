"""Prometheus metrics: metric families, and the meter with its registry."""

import functools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Final
from uuid import UUID

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from riglm.domain.exposure import SEARCH_SURFACE, Exposure, Mode, TokenTally
from riglm.domain.invocation import OWN_UPSTREAM, USES, DiscoveryMethod, ErrorKind
from riglm.domain.list_plan import Prices
from riglm.domain.session import Session
from riglm.domain.session_cost import Cost, SessionCost
from riglm.domain.tool_pin import ToolChange, ToolPin
from riglm.ports.embedder import EmbedderStatus
from riglm.ports.telemetry import MeterPort, MetricSources


class HistogramCounter:
    """How many values fell into which bucket, and their sum."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        """Buckets up to and with each bound, ascending, and one for what is larger."""
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def expose(self, family: HistogramMetricFamily, labels: Sequence[str] = ()) -> None:
        """Add the counts to a family, as cumulative buckets."""
        counts, total = list(self._counts), self._sum
        family.add_metric(labels, list(_cumulative(self._bounds, counts)), total)


class CallCounters:
    """The calls of one server."""

    __slots__ = ("duration", "ends", "held")

    def __init__(self, duration: Sequence[float], held: Sequence[float]) -> None:
        """`duration` and `held` are the bounds of the buckets."""
        self.ends: dict[tuple[DiscoveryMethod, ErrorKind | None], int] = {(found, None): 0 for found in DiscoveryMethod}
        self.duration = HistogramCounter(duration)
        self.held = HistogramCounter(held)

    @property
    def is_used(self) -> bool:
        """Whether any call was counted."""
        return any(self.ends.values())

    def add(self, found: DiscoveryMethod, error_kind: ErrorKind | None, seconds: float) -> None:
        """Count a call."""
        key = (found, error_kind)
        self.ends[key] = self.ends.get(key, 0) + 1
        self.duration.add(seconds)


class ExposureCounters:
    """What the lists of one mode came to, the hits and misses among the uses of tools, and what sessions cost."""

    __slots__ = ("available", "changes", "cost", "tokens", "tools", "uses")

    def __init__(self, tools: Sequence[float]) -> None:
        """`tools` are the bounds of the buckets for numbers of tools."""
        self.tools = HistogramCounter(tools)
        self.available = HistogramCounter(tools)
        self.uses = {True: 0, False: 0}
        self.changes = 0
        self.tokens = TokenTally()
        self.cost = Cost()

    def add(self, exposure: Exposure, *, changed: bool) -> None:
        """Count what was shown."""
        self.tokens.add(exposure, changed=changed)
        if exposure.is_list:
            self.tools.add(len(exposure.shown))
            self.available.add(len(exposure.shown) + len(exposure.hidden))
            self.changes += changed


def _cumulative(bounds: Sequence[float], counts: Sequence[int]) -> Iterator[tuple[str, float]]:
    so_far = 0
    for bound, count in zip((*bounds, inf), counts, strict=True):
        so_far += count
        yield "+Inf" if bound == inf else repr(bound), so_far


_LINK_STATES: Final = ("idle", "opening", "open", "broken")
_EMBEDDER_STATES: Final = ("not_loaded", "loading", "ready", "unavailable")

Samples = Sequence[tuple[Sequence[str], float]]
"""Values by the values of their labels."""


def counter(name: str, words: str, samples: Samples, labels: Sequence[str] = ()) -> Metric:
    """Of what only grows; `_total` is added to the name."""
    family = CounterMetricFamily(name, words, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def gauge(name: str, words: str, samples: Samples, labels: Sequence[str] = ()) -> Metric:
    """Of what goes up and down."""
    family = GaugeMetricFamily(name, words, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def histogram(
    name: str, words: str, samples: Sequence[tuple[Sequence[str], HistogramCounter]], labels: Sequence[str] = ()
) -> Metric:
    """Of how large things were."""
    family = HistogramMetricFamily(name, words, labels=labels)
    for values, tally in samples:
        tally.expose(family, values)
    return family


def of_records(readings: MetricSources) -> Iterator[Metric]:
    """The terms of the law, from one look at the account: accepted = stored + queued + spooled + dropped."""
    counts = readings.records()
    yield counter(
        "riglm_records_accepted",
        "Records taken: the sum of those stored, queued, spooled and dropped.",
        [((), counts.accepted)],
    )
    yield counter("riglm_records_stored", "Records in the store.", [((), counts.stored)])
    yield gauge("riglm_records_queued", "Records that wait in memory.", [((), counts.queued)])
    yield gauge("riglm_records_spooled", "Records that wait on disk.", [((), counts.spooled)])
    yield counter(
        "riglm_records_dropped",
        "Records lost, by reason: the queue was full, the store refused them, they were damaged, or riglm ended.",
        [((reason,), count) for reason, count in counts.reasons.items()],
        ("reason",),
    )
    yield counter(
        "riglm_records_recovered",
        "Records among those taken that ended processes left on disk.",
        [((), counts.recovered)],
    )
    yield gauge("riglm_spool_bytes", "What the records on disk take there.", [((), counts.spool_bytes)])
    if readings.archived is not None:
        sent = readings.archived()
        waiting = [((), sent.queued + sent.spooled)]
        yield gauge("riglm_clickhouse_records_waiting", "Records to send to ClickHouse.", waiting)
        yield counter("riglm_clickhouse_records_dropped", "Records not sent to ClickHouse.", [((), sent.dropped)])


def of_upstreams(readings: MetricSources) -> Iterator[Metric]:
    """The ways to the servers."""
    found = readings.upstreams()
    yield gauge(
        "riglm_upstream_state",
        "Condition of each server: 1 for its state, 0 for the others.",
        [((one.name, state), float(one.state == state)) for one in found for state in _LINK_STATES],
        ("upstream", "state"),
    )
    yield gauge(
        "riglm_upstream_state_since_timestamp_seconds",
        "When the state of the way to each server began, in seconds since the epoch.",
        [((one.name,), one.since) for one in found],
        ("upstream",),
    )


def of_embedder(status: EmbedderStatus) -> Iterator[Metric]:
    """The embedder, where there is one."""
    yield gauge(
        "riglm_embedder_state",
        "Condition of the embedder: 1 for its state, 0 for the others.",
        [((state,), float(status.status == state)) for state in _EMBEDDER_STATES],
        ("state",),
    )
    yield gauge(
        "riglm_embedder_fallback_active",
        "Whether hashed words replace the configured model.",
        [((), float(status.is_fallback_active))],
    )
    yield InfoMetricFamily(
        "riglm_embedder",
        "The embedder that is used.",
        value={"provider": status.actual_provider, "model": status.actual_model, "quality": status.semantic_quality},
    )


PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_SUFFIX_OF_TYPE: Final = {"counter": "_total", "info": "_info"}
_PLAIN_TYPE: Final = {"info": "gauge", "stateset": "gauge", "unknown": "untyped", "gaugehistogram": "histogram"}


def content_type(accept: str) -> str:
    """Return the format for an `Accept` header: OpenMetrics if it is named, otherwise the plain one."""
    return OPENMETRICS if OPENMETRICS.partition(";")[0] in accept.lower() else PLAIN


def written(families: Iterable[Metric], kind: str) -> bytes:
    """The families in the format of this content type."""
    is_open = kind == OPENMETRICS
    lines = [line for family in families for line in _lines(family, is_open=is_open)]
    if is_open:
        lines.append("# EOF")
    return "\n".join([*lines, ""]).encode()


def _lines(family: Metric, *, is_open: bool) -> Iterator[str]:
    name, kind = family.name, family.type
    if not is_open:  # it names what OpenMetrics calls the family by the name of its samples
        name += _SUFFIX_OF_TYPE.get(kind, "")
        kind = _PLAIN_TYPE.get(kind, kind)
    yield f"# HELP {name} {_help(family.documentation, is_open=is_open)}"
    yield f"# TYPE {name} {kind}"
    for sample in family.samples:
        yield f"{sample.name}{_labels(tuple(sample.labels.items()))} {float(sample.value)!r}"


def _help(words: str, *, is_open: bool) -> str:
    return _escaped(words) if is_open else words.replace("\\", "\\\\").replace("\n", "\\n")


@functools.lru_cache(maxsize=8192)
def _labels(labels: tuple[tuple[str, str], ...]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


REFUSED: Final = "_none"
"""The upstream of calls that went to none: their tool is denied, or does not exist."""

OTHER: Final = "_other"
"""The upstream of all those that the configuration does not know; no server's name begins so."""

_UNNAMED: Final = frozenset({OWN_UPSTREAM, REFUSED, OTHER})
"""Upstreams that were not configured: they are reported from their first use on."""

_DURATION: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_HELD: Final = (0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5)
_PREDICTED: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5)
_TOOLS: Final = (0.0, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 80.0, 128.0, 256.0, 512.0, 1024.0)
_SEARCHES: Final = (0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
_MODES: Final[tuple[Mode, ...]] = ("enforce", "shadow", "off")


class PrometheusMetrics(MeterPort):
    """Counts on the event loop, and returns the counts to a scrape on any thread.

    Labels are bounded: servers by the names configured, and nothing that clients or servers choose.
    """

    def __init__(self, upstreams: Iterable[str], version: Callable[[], str]) -> None:
        """Metrics of a riglm of this `version`, in front of servers with these names."""
        servers = tuple(upstreams)
        self._calls = {name: CallCounters(_DURATION, _HELD) for name in (*servers, OWN_UPSTREAM, REFUSED, OTHER)}
        self._calls[""] = self._calls[REFUSED]
        self._shown = {mode: ExposureCounters(_TOOLS) for mode in _MODES}
        self._predicted = HistogramCounter(_PREDICTED)
        self._listed = HistogramCounter(_PREDICTED)
        self._changed_tools = {(server, change.value): 0 for server in servers for change in ToolChange}
        self._searched = 0
        self._searches = HistogramCounter(_SEARCHES)
        self._by_session: dict[UUID, int] = {}
        self._costs: dict[UUID, SessionCost] = {}
        self._sessions: dict[tuple[str, str], int] = {}
        self._version = version
        self._readings: MetricSources | None = None
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Own(self))
        for standard in (ProcessCollector, PlatformCollector, GCCollector):
            standard(registry=self._registry)

    def read_from(self, readings: MetricSources) -> None:
        """Report `readings` as well, from now on."""
        self._readings = readings

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
        calls = self._calls.get(upstream) or self._calls[OTHER]
        calls.add(found, error_kind, seconds)
        if error_kind in USES and upstream and upstream != OWN_UPSTREAM:
            if is_hit is not None:
                self._shown[mode].uses[is_hit] += 1
            if session_id in self._costs:
                self._costs[session_id].called(tool)

    def held(self, upstream: str, seconds: float) -> None:
        (self._calls.get(upstream) or self._calls[OTHER]).held.add(seconds)

    def exposed(self, exposure: Exposure, *, changed: bool) -> None:
        self._shown[exposure.mode].add(exposure, changed=changed)
        cost = self._costs.get(exposure.session_id)
        if cost is None:
            prices = Prices() if self._readings is None else self._readings.prices()
            cost = self._costs[exposure.session_id] = SessionCost(prices)
        cost.shown(exposure)
        if exposure.surface == SEARCH_SURFACE:
            self._searched += 1
            self._by_session[exposure.session_id] = self._by_session.get(exposure.session_id, 0) + 1
        elif exposure.is_list:
            self._by_session.setdefault(exposure.session_id, 0)

    def listed(self, seconds: float) -> None:
        self._listed.add(seconds)

    def tool_changed(self, pin: ToolPin) -> None:
        """Count a tool that is not as it was approved."""
        if pin.change is not None:
            self._changed_tools[pin.server, pin.change.value] += 1

    def predicted(self, seconds: float) -> None:
        self._predicted.add(seconds)

    def session_opened(self, session: Session) -> None:
        key = (session.era.value, session.transport.value)
        self._sessions[key] = self._sessions.get(key, 0) + 1

    def session_closed(self, session_id: UUID, *, ended: bool) -> None:
        searches, price = self._by_session.pop(session_id, None), self._costs.pop(session_id, None)
        if searches is not None and ended:
            self._searches.add(searches)
        cost = price.finish() if price is not None and ended else None
        if price is not None and cost is not None:
            shown = self._shown[price.mode]
            shown.cost += cost

    def scrape(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics and their content type: OpenMetrics if accepted, otherwise the format of Prometheus."""
        kind = content_type(accept)
        return written(self._registry.collect(), kind), kind

    def families(self) -> Iterator[Metric]:
        """Return riglm's metrics, each with its current samples."""
        yield InfoMetricFamily("riglm_build", "Which riglm this is.", value={"version": self._version()})
        yield from self._of_calls()
        yield from self._of_lists()
        yield from self._of_sessions()
        yield histogram(
            "riglm_list_overhead_seconds",
            "What riglm itself took of tool lists: from the arrival of the servers' last page until the list was on "
            "its way to the client.",
            [((), self._listed)],
        )
        yield counter(
            "riglm_tool_changes",
            "Tools that this process found to be other than approved, by server: changed, or added.",
            list(self._changed_tools.items()),
            ("upstream", "change"),
        )
        yield histogram("riglm_prediction_seconds", "How long predictions took.", [((), self._predicted)])
        if self._readings is not None:
            yield from of_records(self._readings)
            yield from of_upstreams(self._readings)
            yield gauge("riglm_sessions_live", "Sessions that may still grow.", [((), self._readings.sessions())])
            status = self._readings.embedder()
            if status is not None:
                yield from of_embedder(status)

    def _of_calls(self) -> Iterator[Metric]:
        by_name = [
            (name, calls, dict(calls.ends))
            for name, calls in self._calls.items()
            if name and (name not in _UNNAMED or calls.is_used)
        ]
        yield counter(
            "riglm_calls",
            "Tool calls that ended, by server, by how the client came to know the tool, and by how they ended.",
            [
                ((name, found.value, kind.value if kind else "success"), count)
                for name, _, ends in by_name
                for (found, kind), count in ends.items()
            ],
            ("upstream", "found", "outcome"),
        )
        yield counter(
            "riglm_call_errors",
            "Tool calls that did not succeed, by server and kind.",
            [
                ((name, kind.value), sum(count for (_, ended), count in ends.items() if ended is kind))
                for name, _, ends in by_name
                for kind in ErrorKind
            ],
            ("upstream", "kind"),
        )
        yield histogram(
            "riglm_call_duration_seconds",
            "How long tool calls took, from the request to the end of the call.",
            [((name,), calls.duration) for name, calls, _ in by_name],
            ("upstream",),
        )
        yield histogram(
            "riglm_call_overhead_seconds",
            "What riglm itself took of calls that a server answered: until the request was on its way there, and from "
            "the answer's arrival until that was on its way to the client.",
            [((name,), calls.held) for name, calls, _ in by_name if name not in _UNNAMED or name == OTHER],
            ("upstream",),
        )
        yield counter(
            "riglm_hit_rate_calls",
            "Tools of servers that were used while the list hid something, by result: hit, the tool was in the list "
            "or riglm suggested it; missed, it was not in the list. Names that no server lists do not count. In the "
            "mode shadow, what would have been.",
            [
                ((mode, "hit" if is_hit else "missed"), count)
                for mode, shown in self._shown.items()
                for is_hit, count in shown.uses.items()
            ],
            ("mode", "result"),
        )

    def _of_lists(self) -> Iterator[Metric]:
        by_mode = [((mode,), shown) for mode, shown in self._shown.items()]
        label = ("mode",)
        yield histogram(
            "riglm_list_shown_tools",
            "Tools in each new list of a session; in the mode shadow, what it would have had.",
            [(mode, shown.tools) for mode, shown in by_mode],
            label,
        )
        yield histogram(
            "riglm_list_available_tools",
            "Tools that there were for each new list: the reduction is one less the ratio of the two sums.",
            [(mode, shown.available) for mode, shown in by_mode],
            label,
        )
        yield counter(
            "riglm_list_changes",
            "Lists that differ from the one that the session was shown before.",
            [(mode, shown.changes) for mode, shown in by_mode],
            label,
        )
        tokens = {
            "shown": "Estimated tokens of the definitions in new lists.",
            "hidden": "Estimated tokens of the definitions that new lists left out.",
            "meta_tools": "Estimated tokens of the meta-tools in new lists, and of results of searches and contexts.",
            "resent": "Estimated tokens of the lists that were sent because a list had changed.",
        }
        for name, words in tokens.items():
            samples = [(mode, getattr(shown.tokens, name)) for mode, shown in by_mode]
            yield counter(f"riglm_tokens_{name}", words, samples, label)
        yield gauge(
            "riglm_tokens_net",
            "Estimated tokens saved so far: those hidden, less those of meta-tools and those sent again. In the mode "
            "shadow, what would have been saved.",
            [(mode, shown.tokens.net) for mode, shown in by_mode],
            label,
        )

        yield counter(
            "riglm_price_tokens",
            "Price of the model requests of ended sessions, in tokens of uncached input: through riglm, with no proxy, "
            "and with the tool search of a host. With preload hints, no proxy means that search. In the mode shadow, "
            "what would have been paid.",
            [
                ((mode, arm), getattr(shown.cost, arm))
                for (mode,), shown in by_mode
                for arm in ("riglm", "no_proxy", "host_search")
            ],
            ("mode", "arm"),
        )

    def _of_sessions(self) -> Iterator[Metric]:
        yield counter(
            "riglm_sessions", "Sessions that began.", list(dict(self._sessions).items()), ("era", "transport")
        )
        yield counter("riglm_searches", "Searches that were answered.", [((), self._searched)])
        yield histogram(
            "riglm_session_searches",
            "Searches in each session that has ended and was shown a list; fewer are better.",
            [((), self._searches)],
        )


class _Own(Collector):
    """Return riglm's metrics, for the registry."""

    def __init__(self, metrics: PrometheusMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return self._metrics.families()
