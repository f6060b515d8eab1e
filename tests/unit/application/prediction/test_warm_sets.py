"""Warm sets: what lists are made from stays the same until there is twice the evidence, or the period ends."""

import asyncio
import threading

import pytest

from riglm.application.prediction.warm_sets import WarmSets
from riglm.application.worker import Worker
from riglm.domain.invocation import ErrorKind
from riglm.domain.session import PROFILE, ClientInfo
from tests.records import a_session, an_invocation
from tests.stores.memory import InMemoryAnalytics
from tests.waiting import WAIT_SECONDS

DAY = 86_400.0
NOON = 20_000 * DAY + DAY / 2
MODULE = "riglm.application.prediction.warm_sets"


class Store(InMemoryAnalytics):
    """Counts how often it is read, fails when it is told to, and waits for `go`."""

    def __init__(self):
        super().__init__()
        self.reads = 0
        self.error = None
        self.go = threading.Event()
        self.go.set()

    def list_session_uses(self, principal=None, limit=300, *, profile=None):
        self.reads += 1
        assert self.go.wait(WAIT_SECONDS)
        if self.error is not None:
            raise self.error
        return super().list_session_uses(principal, limit, profile=profile)


class Stage:
    """Warm sets over a store that outlives them."""

    def __init__(self, worker, store=None, **options):
        self.worker = worker
        self.store = store or Store()
        self.now = NOON
        self.options = {"period": DAY, **options}
        self.changes = 0
        self.restart()

    def restart(self):
        """Start another process with this store."""
        self.warm_sets = WarmSets(self.worker, lambda: self.store, clock=lambda: self.now, **self.options)
        self.warm_sets.on_change(self.changed)

    def changed(self):
        self.changes += 1

    def record(self, sessions, *tools, client="tester", principal="", profile="", **call):
        """Record so many sessions that each call these tools."""
        for _ in range(sessions):
            session = a_session(
                started_at=self.now - 60.0,
                client=ClientInfo(name=client),
                principal=principal,
                metadata={PROFILE: profile} if profile else {},
            )
            self.store.record_many([session, *(an_invocation(session, tool, **call) for tool in tools)])

    async def usage(self, client="tester", principal="", profile="default"):
        """Return the estimate that a session which starts now gets."""
        session = a_session(client=ClientInfo(name=client), principal=principal, metadata={PROFILE: profile})
        await self.warm_sets.refresh(session)
        return self.warm_sets.usage(session)

    async def likeliest(self, **of):
        usage = await self.usage(**of)
        return None if usage is None else max(usage.probabilities, key=usage.probabilities.get)


@pytest.fixture(autouse=True)
def _every_session_reads_the_store(monkeypatch):
    monkeypatch.setattr(f"{MODULE}.RECHECK_SECONDS", -1.0)
    monkeypatch.setattr(f"{MODULE}._TIMEOUT_SECONDS", 60.0)  # a loaded machine stops for seconds


@pytest.fixture
def worker():
    with Worker() as made:
        yield made


@pytest.fixture
def stage(worker):
    return Stage(worker)


async def test_nothing_is_learned_from_fewer_than_three_sessions_with_calls(stage):
    assert await stage.usage() is None
    stage.record(2, "read")
    stage.record(5)
    stage.record(5, "read", success=False, error_kind=ErrorKind.TOOL)
    assert await stage.usage() is None
    stage.record(1, "read")
    usage = await stage.usage()
    assert (usage.evidence, set(usage.probabilities)) == (3, {"read"})


async def test_a_warm_set_stays_the_same_until_the_evidence_has_doubled(stage):
    stage.record(3, "read")
    first = await stage.usage()
    stage.record(2, "write")
    assert await stage.usage() == first
    stage.record(1, "write")
    second = await stage.usage()
    assert (second.evidence, set(second.probabilities)) == (6, {"read", "write"})
    stage.record(5, "list")
    assert await stage.usage() == second


async def test_a_warm_set_stays_the_same_until_the_period_ends(stage):
    stage.record(4, "read")
    first = await stage.usage()
    stage.record(1, "write")
    stage.now += DAY - 1
    assert await stage.usage() == first
    stage.now += 2
    assert "write" in (await stage.usage()).probabilities


async def test_a_warm_set_outlives_a_restart(stage):
    stage.record(4, "read")
    first = await stage.usage()
    stage.record(2, "write")
    stage.restart()
    assert await stage.usage() == first


async def test_processes_that_start_at_once_agree(worker):
    one = Stage(worker)
    one.record(4, "read")
    with Worker() as second:
        other = Stage(second, one.store)
        mine, yours = await asyncio.gather(one.usage(), other.usage())
        one.record(2, "write")
        assert await one.usage() == await other.usage() == mine == yours


async def test_results_follow_what_is_recorded_at_once(stage):
    stage.record(4, "read")
    await stage.usage()
    stage.record(3, "read", "write")
    await stage.usage()
    after = stage.warm_sets.model(a_session(client=ClientInfo(name="tester"))).after({"read"})
    assert set(after) == {"write"}
    assert "write" not in (await stage.usage()).probabilities


async def test_a_client_learns_from_its_own_sessions_once_there_are_three(stage):
    stage.record(9, "read", client="other")
    stage.record(2, "write")
    assert await stage.likeliest() == "read"
    stage.record(1, "write")
    assert await stage.likeliest() == "write"
    assert await stage.likeliest(client="a third") == "read"


async def test_a_profile_learns_from_its_own_sessions_once_there_are_three(stage):
    stage.record(9, "read")
    stage.record(3, "write", profile="work")
    assert await stage.likeliest() == "read"
    assert await stage.likeliest(profile="work") == "write"


@pytest.mark.parametrize(("by_principal", "expected"), [(True, None), (False, "read")])
async def test_principals_learn_from_each_other_only_where_they_are_to(worker, by_principal, expected):
    stage = Stage(worker, by_principal=by_principal)
    stage.record(9, "read", principal="ann")
    assert await stage.likeliest(principal="ann") == "read"
    assert await stage.likeliest(principal="bob") == expected


async def test_a_change_is_reported_only_if_a_warm_set_replaces_another(stage):
    await stage.usage()
    assert stage.changes == 0
    stage.record(3, "read")
    await stage.usage()
    stage.changes = 0
    for _ in range(3):
        stage.record(1, "read")
        await stage.usage()
    assert stage.changes == 1


async def test_sessions_that_start_together_read_the_store_once(stage, monkeypatch):
    monkeypatch.setattr(f"{MODULE}.RECHECK_SECONDS", 60.0)
    stage.record(3, "read")
    stage.store.go.clear()
    waiting = [asyncio.create_task(stage.usage()) for _ in range(5)]
    await asyncio.sleep(0)
    stage.store.go.set()
    found = await asyncio.gather(*waiting)
    await stage.usage()
    assert stage.store.reads == 1
    assert all(each == found[0] is not None for each in found)


async def test_a_store_that_fails_leaves_what_was_read_last(stage, caplog):
    stage.record(3, "read")
    first = await stage.usage()
    stage.store.error = OSError("the disk is gone")
    assert [await stage.usage() for _ in range(2)] == [first, first]
    assert len(caplog.records) == 1
    stage.restart()
    assert await stage.usage() is None


async def test_a_store_that_hangs_is_not_waited_for_and_counts_when_it_answers(stage, monkeypatch):
    monkeypatch.setattr(f"{MODULE}._TIMEOUT_SECONDS", 0.01)
    stage.record(3, "read")
    stage.store.go.clear()
    assert await stage.usage() is None
    stage.store.go.set()
    async with asyncio.timeout(WAIT_SECONDS):
        while await stage.usage() is None:
            await asyncio.sleep(0)


async def test_another_scope_or_a_reread_forgets_what_was_read(stage):
    stage.record(3, "read", principal="ann")
    assert await stage.likeliest(principal="bob") is None
    stage.warm_sets.follow(period=DAY, by_principal=False)
    assert await stage.likeliest(principal="bob") == "read"
    stage.store = Store()
    stage.warm_sets.reread()
    assert await stage.usage() is None
