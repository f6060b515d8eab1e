"""Families of metrics: made of samples, and of values that are read at a scrape."""

import functools
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Final

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from riglm.domain.exposure import Exposure
from riglm.domain.invocation import DiscoveryMethod, ErrorKind
from riglm.domain.session_cost import Cost
from riglm.ports.embedder import EmbedderStatus
from riglm.ports.telemetry import MetricSources


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
    """What the lists of one mode came to, how the tools were found that were used with them, and what sessions cost."""

    __slots__ = ("available", "changes", "cost", "found", "hidden", "own", "resent", "shown", "tools")

    def __init__(self, tools: Sequence[float]) -> None:
        """`tools` are the bounds of the buckets for numbers of tools."""
        self.tools = HistogramCounter(tools)
        self.available = HistogramCounter(tools)
        self.found = dict.fromkeys(DiscoveryMethod, 0)
        self.changes = 0
        self.shown = 0
        self.hidden = 0
        self.own = 0
        self.resent = 0
        self.cost = Cost()

    def add(self, exposure: Exposure, *, changed: bool) -> None:
        """Count what was shown."""
        if not exposure.is_list:
            self.own += exposure.tokens_shown
            return
        self.tools.add(len(exposure.shown))
        self.available.add(len(exposure.shown) + len(exposure.hidden))
        self.shown += exposure.tokens_shown
        self.hidden += exposure.tokens_hidden
        self.own += exposure.tokens_own
        if changed:
            self.changes += 1
            self.resent += exposure.tokens_shown


def _cumulative(bounds: Sequence[float], counts: Sequence[int]) -> Iterator[tuple[str, float]]:
    so_far = 0
    for bound, count in zip((*bounds, inf), counts, strict=True):
        so_far += count
        yield "+Inf" if bound == inf else repr(bound), so_far


_LINK_STATES: Final = ("idle", "opening", "open", "broken")
_EMBEDDER_STATES: Final = ("loading", "ready", "unavailable")

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
