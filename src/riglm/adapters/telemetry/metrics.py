"""Metrics as Prometheus reads them, from a separate registry."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final
from uuid import UUID

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.metrics_core import InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from riglm.adapters.telemetry.metric_families import (
    CallCounters,
    ExposureCounters,
    HistogramCounter,
    content_type,
    counter,
    gauge,
    histogram,
    of_embedder,
    of_records,
    of_upstreams,
    written,
)
from riglm.domain.exposure import SEARCH_SURFACE, Exposure, Mode
from riglm.domain.invocation import OWN_UPSTREAM, USES, DiscoveryMethod, ErrorKind
from riglm.domain.list_plan import Prices
from riglm.domain.session import Session
from riglm.domain.session_cost import Cost, SessionCost
from riglm.ports.telemetry import MeterPort, MetricSources

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
_HITS: Final = {DiscoveryMethod.LISTED: "hit", DiscoveryMethod.SEARCHED: "searched", DiscoveryMethod.NAMED: "missed"}


class PrometheusMetrics(MeterPort):
    """Counts on the event loop, and returns the counts to a scrape on any thread.

    Labels are bounded: servers by the names configured, and nothing that clients or servers choose.
    """

    def __init__(self, upstreams: Iterable[str], version: Callable[[], str]) -> None:
        """Metrics of a riglm of this `version`, in front of servers with these names."""
        self._calls = {name: CallCounters(_DURATION, _HELD) for name in (*upstreams, OWN_UPSTREAM, REFUSED, OTHER)}
        self._calls[""] = self._calls[REFUSED]
        self._shown = {mode: ExposureCounters(_TOOLS) for mode in _MODES}
        self._predicted = HistogramCounter(_PREDICTED)
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
        result: DiscoveryMethod | None = None,
    ) -> None:
        calls = self._calls.get(upstream) or self._calls[OTHER]
        calls.add(found, error_kind, seconds)
        if error_kind in USES and upstream and upstream != OWN_UPSTREAM:
            if result is not None:
                self._shown[mode].found[result] += 1
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
            shown.cost = Cost.sum((shown.cost, cost))

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
            "riglm_zero_hop",
            "Tools of servers that were used while the list hid something, by result: hit, the tool was in the list "
            "shown or riglm suggested it; searched, a search found it; missed, it was called by a name that was in "
            "neither. In the mode shadow, what would have been.",
            [
                ((mode, _HITS[found]), count)
                for mode, shown in self._shown.items()
                for found, count in dict(shown.found).items()
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
            "own": "Estimated tokens of the meta-tools in new lists, and of results of searches and contexts.",
            "resent": "Estimated tokens of the lists that were sent because a list had changed.",
        }
        for name, words in tokens.items():
            samples = [(mode, getattr(shown, name)) for mode, shown in by_mode]
            yield counter(f"riglm_tokens_{name}", words, samples, label)
        yield gauge(
            "riglm_tokens_net",
            "Estimated tokens saved so far: those hidden, less those of meta-tools and those sent again.",
            [(mode, shown.hidden - shown.own - shown.resent) for mode, shown in by_mode],
            label,
        )

        yield counter(
            "riglm_price_tokens",
            "Price of the model requests of ended sessions, in tokens of uncached input: through riglm, with no proxy, "
            "and with the tool search of a host. In the mode shadow, what would have been paid.",
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
