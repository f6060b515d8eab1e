"""What is scraped, by the eyes of Prometheus' own parsers."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from riglm.adapters.telemetry.metrics import OPENMETRICS, OTHER, PLAIN, REFUSED, PrometheusMetrics
from riglm.domain.exposure import Exposure
from riglm.domain.invocation import DiscoveryMethod, ErrorKind
from riglm.domain.session import IdentificationMethod, ProtocolEra, Session, Transport, uuid7
from riglm.domain.upstream import UpstreamHealth
from riglm.ports.embedder import EmbedderStatus
from riglm.ports.telemetry import MetricSources

SESSION = uuid7()
ACCEPT = (  # as Prometheus 3 says it
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;"
    "q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
COUNTS = SimpleNamespace(
    accepted=26,
    stored=11,
    queued=5,
    spooled=4,
    dropped=6,
    recovered=2,
    reasons={"full": 3, "refused": 2, "damaged": 1, "closed": 0},
    spool_bytes=4096,
)
EMBEDDER = EmbedderStatus(
    provider="static",
    model="m",
    status="ready",
    actual_provider="hashing",
    actual_model='words "and" \\ more\n',
    dimensions=256,
    is_fallback_active=True,
    semantic_quality="low",
)
READINGS = MetricSources(
    records=lambda: COUNTS,
    upstreams=lambda: [
        UpstreamHealth(name="docs", state="open", since=12.5),
        UpstreamHealth(name="mail", state="broken", since=99.0, last_error="no such program"),
    ],
    sessions=lambda: 3,
    embedder=lambda: EMBEDDER,
)


@pytest.fixture
def metrics() -> PrometheusMetrics:
    made = PrometheusMetrics(["docs", "mail"], lambda: "9.9")
    made.read_from(READINGS)
    return made


def values(metrics: PrometheusMetrics, accept: str = "") -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample by name and labels, as a parser reads it."""
    body, kind = metrics.scrape(accept)
    parse = parse_openmetrics if kind == OPENMETRICS else parse_plain
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parse(body.decode())
        for sample in family.samples
    }


def value(metrics: PrometheusMetrics, name: str, **labels: str) -> float:
    return values(metrics)[name, frozenset(labels.items())]


def exposed(shown: int, hidden: int = 0, **more: object) -> Exposure:
    names = tuple(f"t{number}" for number in range(shown + hidden))
    given = {"session_id": uuid7(), "timestamp": 1.0, "mode": "enforce", "surface": "dynamic", **more}
    return Exposure(id=uuid7(), shown=names[:shown], hidden=names[shown:], **given)  # type: ignore[arg-type]


def session() -> Session:
    return Session(
        started_at=1.0, era=ProtocolEra.MODERN, transport=Transport.HTTP, method=IdentificationMethod.ADDRESS
    )


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain", "text/html;q=0.9, nonsense;;version=x", ACCEPT])
def test_what_is_scraped_parses_in_the_format_that_was_asked_for(metrics, accept):
    metrics.called(SESSION, "read", "docs", DiscoveryMethod.LISTED, None, 0.02)
    metrics.called(SESSION, "read", "mail", DiscoveryMethod.NAMED, ErrorKind.TIMEOUT, 900.0)
    metrics.session_opened(session())
    _, kind = metrics.scrape(accept)
    assert kind == (OPENMETRICS if "openmetrics" in accept else PLAIN)
    found = values(metrics, accept)
    assert len(found) > 100
    assert found["riglm_build_info", frozenset({("version", "9.9")})] == 1.0


def test_names_that_are_not_configured_are_folded_into_one(metrics):
    before = len(values(metrics))
    for number in range(1000):
        metrics.called(SESSION, "read", f"stranger-{number}", DiscoveryMethod.NAMED, None, 0.1)
        metrics.held(f"stranger-{number}", 0.1)
    metrics.called(SESSION, "read", "", DiscoveryMethod.NAMED, ErrorKind.PROTOCOL, 0.1)
    assert value(metrics, "riglm_calls_total", upstream=OTHER, found="named", outcome="success") == 1000
    assert value(metrics, "riglm_call_overhead_seconds_count", upstream=OTHER) == 1000
    assert value(metrics, "riglm_calls_total", upstream=REFUSED, found="named", outcome="protocol") == 1
    assert len(values(metrics)) < before + 80


def test_a_session_that_goes_on_elsewhere_has_no_price_here(metrics):
    metrics.exposed(exposed(1, 3, session_id=SESSION, tokens_shown=1_200), changed=False)
    metrics.called(SESSION, "t0", "docs", DiscoveryMethod.LISTED, None, 0.1, "enforce", True)
    metrics.session_closed(SESSION, ended=False)
    assert value(metrics, "riglm_price_tokens_total", mode="enforce", arm="no_proxy") == 0


def test_the_terms_of_the_law_are_of_one_instant():
    stored = 0

    def moving() -> SimpleNamespace:
        nonlocal stored
        stored += 1  # whoever asks twice gets two accounts
        return SimpleNamespace(**{**vars(COUNTS), "stored": stored, "queued": 16 - stored})

    metrics = PrometheusMetrics(["docs"], lambda: "1")
    metrics.read_from(replace(READINGS, records=moving))
    found = {name: one for (name, _), one in values(metrics).items() if "records" in name and "dropped" not in name}
    dropped = sum(one for (name, _), one in values(metrics).items() if name == "riglm_records_dropped_total")
    parts = ("riglm_records_stored_total", "riglm_records_queued", "riglm_records_spooled")
    assert found["riglm_records_accepted_total"] == sum(found[part] for part in parts) + dropped
    assert (found["riglm_records_spooled"], found["riglm_records_recovered_total"]) == (4, 2)
