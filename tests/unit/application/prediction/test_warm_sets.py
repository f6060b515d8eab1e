"""Warm sets: what lists are made from stays the same until the evidence has grown by 30 %, or the period ends."""

import asyncio
import threading

import numpy as np
import pytest

from riglm.adapters.prediction.usage_statistics import FrequencyPredictor
from riglm.application.prediction.prediction_settings import IsolatedPredictor, PredictionSettings, Strategy
from riglm.application.prediction.warm_sets import RETRY_SECONDS, WarmSets
from riglm.application.worker import Worker
from riglm.domain.prediction import Prediction
from riglm.domain.session import PROFILE, ClientInfo
from riglm.ports.predictor import PredictorPort
from tests.records import a_session, an_invocation
from tests.stores.memory import InMemoryAnalytics
from tests.waiting import WAIT_SECONDS, wait_until_async

DAY = 86_400.0
NOON = 20_000 * DAY + DAY / 2
MODULE = "riglm.application.prediction.warm_sets"
TOOLS = ("list", "read", "write")


class Favoring(PredictorPort):
    """States that a session needs one tool for certain, and others never."""

    def __init__(self, tool):
        self.tool = tool

    def learn(self, prediction_input, tool, weight=1.0):
        pass

    def predict(self, prediction_input, *, explain=False):
        return Prediction(scores=np.array([float(tool == self.tool) for tool in prediction_input.candidates]))


class Broken(Favoring):
    """Raises for as long as `is_broken`."""

    is_broken = True

    def predict(self, prediction_input, *, explain=False):
        if self.is_broken:
            raise ValueError("broken")
        return super().predict(prediction_input, explain=explain)


def a_strategy(name="frequency", make=FrequencyPredictor):
    return Strategy(name=name, key=name, make=make)


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

    def __init__(self, worker, store=None, scope="principal"):
        self.worker = worker
        self.store = store or Store()
        self.now = NOON
        self.strategy = a_strategy()
        self.scope = scope
        self.changes = 0
        self.restart()

    def restart(self):
        """Start another process with this store."""
        self.warm_sets = WarmSets(
            self.worker, self.worker, lambda: self.store, self.settings(), lambda _: "files", clock=lambda: self.now
        )
        self.warm_sets.on_change(self.changed)

    def settings(self, strategy=None):
        return PredictionSettings(strategy=strategy or self.strategy, scope=self.scope, most_pairs=1000, period=DAY)

    def changed(self):
        self.changes += 1

    def record(self, sessions, *tools, client="tester", principal="", profile="", project="", **call):
        """Record so many sessions that each call these tools."""
        for _ in range(sessions):
            session = a_session(
                started_at=self.now - 60.0,
                client=ClientInfo(name=client),
                principal=principal,
                project=project,
                metadata={PROFILE: profile} if profile else {},
            )
            self.store.record_many([session, *(an_invocation(session, tool, **call) for tool in tools)])

    async def warm_set(self, client="tester", principal="", profile="default", project=""):
        """Return the warm set that a session which starts now gets."""
        session = a_session(
            client=ClientInfo(name=client), principal=principal, project=project, metadata={PROFILE: profile}
        )
        await self.warm_sets.refresh(session, TOOLS)
        return self.warm_sets.warm_set(session)

    async def usage(self, **of):
        """Return the estimate that a session which starts now gets."""
        found = await self.warm_set(**of)
        return None if found is None else found.usage

    async def likeliest(self, **of):
        usage = await self.usage(**of)
        return None if usage is None else max(usage.probabilities, key=usage.probabilities.get)


@pytest.fixture(autouse=True)
def _every_session_reads_the_store(monkeypatch):
    monkeypatch.setattr(f"{MODULE}.RECHECK_SECONDS", -1.0)
    monkeypatch.setattr(f"{MODULE}._WAIT_SECONDS", 60.0)  # a loaded machine stops for seconds


@pytest.fixture
def worker():
    with Worker() as made:
        yield made


@pytest.fixture
def stage(worker):
    return Stage(worker)


async def test_a_warm_set_stays_the_same_until_the_evidence_has_grown_by_thirty_percent(stage):
    stage.record(10, "read")
    first = await stage.warm_set()
    stage.record(2, "write")
    assert await stage.warm_set() == first
    stage.record(1, "write")
    second = await stage.warm_set()
    assert second.usage.evidence == 13
    assert second.usage.probabilities["write"] > first.usage.probabilities["write"]
    stage.record(3, "list")
    assert await stage.warm_set() == second


@pytest.mark.parametrize(
    "mine", [{"client": "other"}, {"profile": "work"}, {"project": "q" * 32}], ids=["client", "profile", "project"]
)
async def test_a_client_a_profile_and_a_project_learn_from_their_own_sessions_before_those_of_all(stage, mine):
    stage.record(9, "read")
    stage.record(6, "write", **mine)
    assert await stage.likeliest() == "read"
    assert await stage.likeliest(**mine) == "write"
    assert await stage.likeliest(**dict.fromkeys(mine, "unknown")) == "read"


async def test_a_fallback_is_named_and_the_strategy_is_tried_again(stage):
    stage.record(10, "read")
    stage.strategy = a_strategy(
        "broken",
        lambda: IsolatedPredictor(broken, FrequencyPredictor(), fallback="frequency", timeout_seconds=WAIT_SECONDS),
    )
    stage.restart()
    broken = Broken("list")
    first = await stage.warm_set()
    assert (first.strategy, first.predictor) == ("principal: broken", "frequency")
    assert await stage.likeliest() == "read"
    broken.is_broken = False
    stage.now += RETRY_SECONDS - 1
    assert await stage.warm_set() == first
    stage.now += 2
    assert (await stage.warm_set()).predictor == "broken"
    assert await stage.likeliest() == "list"


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
    monkeypatch.setattr(f"{MODULE}._WAIT_SECONDS", 0.01)
    stage.record(3, "read")
    stage.store.go.clear()
    assert await stage.usage() is None
    monkeypatch.setattr(f"{MODULE}._WAIT_SECONDS", 60.0)
    assert await stage.usage() is None  # at once: only the first session waits
    assert stage.changes == 0
    stage.store.go.set()
    await wait_until_async(lambda: stage.changes, "the lists that were made without it are made again")
    assert await stage.usage() is not None
