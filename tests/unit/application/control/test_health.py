"""How riglm is, by its parts."""

import asyncio
import threading

import pytest

from riglm.application.control.health import HealthService, ProcessInfo, StatusProbes
from riglm.application.control.thread_bridge import ProxyLoop
from riglm.application.tracking.record_queue import RecordCounts
from riglm.domain.control import ControlUnavailableError
from riglm.domain.schemas.control_api import Readiness
from riglm.domain.upstream import UpstreamHealth, UpstreamSpec
from tests.unit.adapters.control.scripted import SIGNAL
from tests.unit.application.control.office import SOON, an_office

COUNTS = RecordCounts(accepted=9, stored=4, queued=2, spooled=3, dropped=0, recovered=0, reasons={})


class Patient:
    """A riglm with two servers."""

    def __init__(self, office):
        self.office = office
        self.upstreams = [UpstreamHealth(name="one", state="open", since=5.0), UpstreamHealth(name="two")]
        self.tools = {"one": 3}
        self.is_store_failing = False
        self.embeddings = "ready"
        self.is_loaded = False
        specs = [UpstreamSpec(name="one", kind="stdio"), UpstreamSpec(name="two", kind="http")]
        self.doctor = HealthService(
            office.proxy,
            [office.store],
            ProcessInfo(version="1.2", started_at=1.0, store_kind="sqlite", specs=specs),
            StatusProbes(
                upstreams=lambda: self.upstreams,
                tool_counts=lambda: self.tools,
                records=lambda: COUNTS,
                is_store_failing=lambda: self.is_store_failing,
                embedder=self.signal,
                load_embedder=self.load,
            ),
        )

    def load(self):
        self.is_loaded = True

    def signal(self):
        return {**SIGNAL, "embeddings": {**SIGNAL["embeddings"], "status": self.embeddings}}

    async def status(self):
        return (await self.doctor.health()).status


@pytest.fixture
async def patient():
    with an_office() as office:
        yield Patient(office)


async def test_every_configured_server_is_told_of_with_what_is_known(patient):
    health = await patient.doctor.health()
    assert (health.status, health.live, health.ready, health.version) == ("ok", True, True, "1.2")
    assert [(each.name, each.transport, each.state, each.since, each.tools) for each in health.upstreams] == [
        ("one", "stdio", "open", 5.0, 3),
        ("two", "http", "idle", None, None),
    ]
    assert (health.store.kind, health.store.state, health.store.queued, health.store.spooled) == ("sqlite", "ok", 2, 3)
    assert await patient.doctor.embedder() == patient.signal()


async def test_riglm_is_ready_until_no_server_can_be_reached(patient):
    patient.upstreams[0] = UpstreamHealth(name="one", state="broken", last_error="it ended")
    assert await patient.status() == "degraded"
    assert await patient.doctor.readiness() == Readiness(ready=True)
    patient.upstreams[1] = UpstreamHealth(name="two", state="broken")
    assert await patient.doctor.readiness() == Readiness(ready=False, reasons=("no server can be reached: one, two",))
    assert (await patient.doctor.health()).upstreams[0].last_error == "it ended"


async def test_a_store_that_is_away_is_told_and_keeps_no_client_away(patient):
    patient.is_store_failing = True
    health = await patient.doctor.health()
    assert (health.status, health.ready, health.store.state) == ("degraded", True, "unavailable")


async def test_that_the_store_is_away_is_noticed_by_asking_too(patient):
    patient.office.archive.away = True
    with pytest.raises(ControlUnavailableError):
        await patient.office.store.ask(lambda store: store.count_sessions())
    assert (await patient.doctor.health()).store.state == "unavailable"


async def test_an_embedder_that_failed_is_a_degradation(patient):
    patient.embeddings = "unavailable"
    assert await patient.status() == "degraded"


async def test_asking_for_the_embedder_loads_it_and_asking_for_the_health_does_not(patient):
    patient.embeddings = "not_loaded"
    assert await patient.status() == "ok"
    assert not patient.is_loaded
    assert (await patient.doctor.embedder())["embeddings"]["status"] == "not_loaded"
    assert patient.is_loaded


async def test_a_proxy_that_does_not_get_on_gives_no_answer(patient):
    stuck = asyncio.new_event_loop()
    doctor = HealthService(ProxyLoop(stuck), [], patient.doctor._identity, patient.doctor._looks)
    try:
        asking = asyncio.create_task(doctor.readiness())
        with pytest.raises(ControlUnavailableError, match="did not answer in time"):
            await asyncio.wait_for(asking, SOON)
    finally:
        thread = threading.Thread(target=stuck.run_until_complete, args=[asyncio.sleep(0)])
        thread.start()
        await asyncio.to_thread(thread.join)
        stuck.close()
