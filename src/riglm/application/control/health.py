"""How riglm is: its servers, its store, its embedder."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from riglm.application.control.thread_bridge import ProxyLoop, StoreThread
from riglm.application.tracking.record_queue import RecordCounts
from riglm.domain.schemas.control_api import EmbedderSignal, Health, Readiness, StoreHealth, UpstreamEntry
from riglm.domain.upstream import UpstreamHealth, UpstreamSpec

_TIMEOUT_SECONDS: Final = 2.0
"""Seconds to wait for the health of riglm: less than usual, since a blocked proxy is an answer as well."""

_UNAVAILABLE: Final = "unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusProbes:
    """Ways to look at the parts of riglm, each called on the proxy's loop.

    `tool_counts` returns the number of tools in the last list of each server; `embedder` the capability signal.
    `load_embedder` starts loading what it is about.
    """

    upstreams: Callable[[], Sequence[UpstreamHealth]]
    tool_counts: Callable[[], Mapping[str, int]]
    records: Callable[[], RecordCounts]
    is_store_failing: Callable[[], bool]
    embedder: Callable[[], Mapping[str, Any]]
    load_embedder: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInfo:
    """What stays the same while riglm runs; `started_at` is in seconds since the epoch."""

    version: str
    started_at: float
    store_kind: str
    specs: Sequence[UpstreamSpec]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    upstreams: tuple[UpstreamEntry, ...]
    records: RecordCounts
    is_store_failing: bool
    embedder: Mapping[str, Any]


class HealthService:
    """Looks at all parts at once; the store is not asked, but for how it did last."""

    def __init__(
        self, proxy: ProxyLoop, stores: Sequence[StoreThread[Any]], identity: ProcessInfo, looks: StatusProbes
    ) -> None:
        """`stores` are the threads on which the control API asks the store."""
        self._proxy = proxy
        self._stores = stores
        self._identity = identity
        self._looks = looks

    async def health(self) -> Health:
        """How riglm is.

        Raises:
            ControlUnavailableError: the proxy does not get on.
        """
        seen = await self._seen()
        readiness = _readiness(seen)
        is_away = seen.is_store_failing or any(store.is_failing for store in self._stores)
        is_hurt = is_away or any(each.state == "broken" for each in seen.upstreams)
        is_blind = seen.embedder.get("embeddings", {}).get("status") == _UNAVAILABLE
        return Health(
            status="ok" if readiness.ready and not is_hurt and not is_blind else "degraded",
            live=True,
            ready=readiness.ready,
            version=self._identity.version,
            started_at=self._identity.started_at,
            upstreams=seen.upstreams,
            store=StoreHealth(
                kind=self._identity.store_kind,
                state="unavailable" if is_away else "ok",
                queued=seen.records.queued,
                spooled=seen.records.spooled,
            ),
            embedder=EmbedderSignal.model_validate(seen.embedder),
        )

    async def readiness(self) -> Readiness:
        """True if clients can be served: an unavailable store or embedder prevents no client from that."""
        return _readiness(await self._seen())

    async def embedder(self) -> Mapping[str, Any]:
        """The capability signal; asking loads the embedder, other than asking for the health."""

        def seen() -> Mapping[str, Any]:
            signal = self._looks.embedder()
            self._looks.load_embedder()
            return signal

        return await self._proxy.look(seen)

    async def _seen(self) -> _Seen:
        return await self._proxy.look(self._look, timeout_seconds=_TIMEOUT_SECONDS)

    def _look(self) -> _Seen:
        looks = self._looks
        healths, counts = {each.name: each for each in looks.upstreams()}, looks.tool_counts()
        upstreams = []
        for spec in self._identity.specs:
            found = healths.get(spec.name, UpstreamHealth(name=spec.name))
            upstreams.append(
                UpstreamEntry(
                    name=spec.name,
                    transport=spec.kind,
                    state=found.state,
                    since=found.since or None,
                    last_error=found.last_error,
                    tools=counts.get(spec.name),
                )
            )
        return _Seen(
            upstreams=tuple(upstreams),
            records=looks.records(),
            is_store_failing=looks.is_store_failing(),
            embedder=looks.embedder(),
        )


def _readiness(seen: _Seen) -> Readiness:
    broken = [each.name for each in seen.upstreams if each.state == "broken"]
    if broken and len(broken) == len(seen.upstreams):
        return Readiness(ready=False, reasons=(f"no server can be reached: {', '.join(broken)}",))
    return Readiness(ready=True)
