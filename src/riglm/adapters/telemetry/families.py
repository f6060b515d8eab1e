"""Families of metrics: made of samples, and of values that are read at a scrape."""

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from riglm.adapters.telemetry.tallies import Tally
from riglm.ports.embedder import EmbedderStatus
from riglm.ports.telemetry import Readings

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
    name: str, words: str, samples: Sequence[tuple[Sequence[str], Tally]], labels: Sequence[str] = ()
) -> Metric:
    """Of how large things were."""
    family = HistogramMetricFamily(name, words, labels=labels)
    for values, tally in samples:
        tally.expose(family, values)
    return family


def of_records(readings: Readings) -> Iterator[Metric]:
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


def of_upstreams(readings: Readings) -> Iterator[Metric]:
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
        value={
            "provider": status.actual_provider,
            "model": status.actual_model,
            "quality": status.semantic_quality,
        },
    )
