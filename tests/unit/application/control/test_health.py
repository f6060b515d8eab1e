"""The health of riglm, by its parts."""

from types import SimpleNamespace

import pytest

from riglm.application.control.statistics import get_embedder, get_health, get_readiness
from riglm.domain.control import ControlUnavailableError
from riglm.domain.schemas.control_api import Readiness
from riglm.domain.upstream import UpstreamHealth, UpstreamSpec
from tests.unit.application.control.parts import COUNTS, SIGNAL, list_tools_now, running_proxy

SPECS = [UpstreamSpec(name="one", kind="stdio"), UpstreamSpec(name="two", kind="http")]


@pytest.fixture
async def proxy():
    """A proxy in front of two servers."""
    upstreams = [UpstreamHealth(name="one", state="open", since=5.0), UpstreamHealth(name="two")]
    with running_proxy(specs=SPECS, upstreams=lambda: upstreams) as (_, proxy):
        yield proxy


async def test_every_configured_server_is_reported_with_what_is_known(proxy):
    list_tools_now(proxy, read="one", write="one")
    found = await get_health(proxy)
    assert (found.status, found.live, found.ready, found.version) == ("ok", True, True, "1.2")
    assert [(each.name, each.transport, each.state, each.since, each.tools) for each in found.upstreams] == [
        ("one", "stdio", "open", 5.0, 2),
        ("two", "http", "idle", None, None),
    ]
    assert (found.store.kind, found.store.state, found.store.queued, found.store.spooled) == ("sqlite", "ok", 2, 2)


async def test_riglm_is_ready_until_no_server_can_be_reached(proxy):
    broken = UpstreamHealth(name="one", state="broken", last_error="it ended")
    proxy.upstreams = lambda: [broken]
    found = await get_health(proxy)
    assert (found.status, found.ready, found.upstreams[0].last_error) == ("degraded", True, "it ended")
    assert await get_readiness(proxy) == Readiness(ready=True)
    proxy.upstreams = lambda: [broken, UpstreamHealth(name="two", state="broken")]
    assert await get_readiness(proxy) == Readiness(ready=False, reasons=("no server can be reached: one, two",))


@pytest.mark.parametrize("is_recording", [True, False])
async def test_an_unavailable_store_is_reported_by_records_and_by_queries_and_keeps_no_client_away(is_recording):
    with running_proxy(recorder=SimpleNamespace(counts=lambda: COUNTS, is_failing=is_recording)) as (store, proxy):
        if not is_recording:
            store.is_unavailable = True
            with pytest.raises(ControlUnavailableError):
                await proxy.store.ask(lambda store: store.count_sessions())
        found = await get_health(proxy)
        assert (found.status, found.ready, found.store.state) == ("degraded", True, "unavailable")


async def test_asking_for_the_embedder_loads_it_and_asking_for_the_health_does_not(proxy):
    loaded, status = [], {**SIGNAL["embeddings"], "status": "unavailable"}
    signal = {**SIGNAL, "embeddings": status}
    proxy.prediction = SimpleNamespace(status=lambda: signal, begin=lambda: loaded.append(1))
    assert (await get_health(proxy)).status == "degraded"
    assert not loaded
    assert await get_embedder(proxy) == signal
    assert loaded
