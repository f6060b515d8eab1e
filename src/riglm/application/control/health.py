"""The health of riglm: its servers, its store and its embedder."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from riglm.application.control.running_proxy import RunningProxy
from riglm.domain.schemas.control_api import EmbedderSignal, Health, Readiness, StoreHealth, UpstreamEntry
from riglm.domain.upstream import UpstreamHealth

_TIMEOUT_SECONDS: Final = 2.0
"""Seconds to wait for the proxy: less than usual, since a blocked proxy is an answer as well."""


async def get_health(proxy: RunningProxy) -> Health:
    """Return the state of all parts. The store is not asked: the state is that of the last query.

    Raises:
        ControlUnavailableError: the proxy is blocked.
    """
    upstreams, signal = await proxy.loop.look(
        lambda: (_list_upstreams(proxy), proxy.prediction.status()), timeout_seconds=_TIMEOUT_SECONDS
    )
    readiness, records, is_failing = _judge_readiness(upstreams), proxy.recorder.counts(), proxy.is_store_failing
    is_degraded = is_failing or any(each.state == "broken" for each in upstreams)
    is_blind = signal["embeddings"]["status"] == "unavailable"
    return Health(
        status="degraded" if is_degraded or is_blind else "ok",
        live=True,
        ready=readiness.ready,
        version=proxy.version,
        started_at=proxy.started_at,
        upstreams=tuple(upstreams),
        store=StoreHealth(
            kind=proxy.store_kind,
            state="unavailable" if is_failing else "ok",
            queued=records.queued,
            spooled=records.spooled,
        ),
        embedder=EmbedderSignal.model_validate(signal),
    )


async def get_readiness(proxy: RunningProxy) -> Readiness:
    """Return whether clients can be served: an unavailable store or embedder prevents no client from that."""
    return _judge_readiness(await proxy.loop.look(lambda: _list_upstreams(proxy), timeout_seconds=_TIMEOUT_SECONDS))


async def get_embedder(proxy: RunningProxy) -> Mapping[str, Any]:
    """Return the capability signal, and start loading the embedder, which `get_health` does not."""

    def load() -> Mapping[str, Any]:
        signal = proxy.prediction.status()
        proxy.prediction.begin()
        return signal

    return await proxy.loop.look(load)


def _list_upstreams(proxy: RunningProxy) -> Sequence[UpstreamEntry]:
    healths = {each.name: each for each in proxy.upstreams()}
    only = proxy.services.owners.only
    counts = proxy.services.catalogs.counts() if only else Counter(proxy.services.owners.servers().values())
    found = []
    for spec in proxy.specs:
        health = healths.get(spec.name, UpstreamHealth(name=spec.name))
        found.append(
            UpstreamEntry(
                name=spec.name,
                transport=spec.kind,
                state=health.state,
                since=health.since or None,
                last_error=health.last_error,
                tools=counts.get(spec.name),
            )
        )
    return found


def _judge_readiness(upstreams: Sequence[UpstreamEntry]) -> Readiness:
    broken = [each.name for each in upstreams if each.state == "broken"]
    if broken and len(broken) == len(upstreams):
        return Readiness(ready=False, reasons=(f"no server can be reached: {', '.join(broken)}",))
    return Readiness(ready=True)
