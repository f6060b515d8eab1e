"""Two processes that look after one store: one at a time, the other goes on when the first is killed."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.container import Container
from riglm.domain.retention import Expiry
from riglm.domain.schemas.settings import Settings
from tests.contracts.maintenance_contract import a_used_session
from tests.records import a_learned_pair
from tests.waiting import WAIT_SECONDS

DEADLINE = WAIT_SECONDS
SESSIONS = 100
KEEPER = """
import json, sys, threading, time
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.application.tracking.maintenance import Maintenance, MaintenanceSchedule
from riglm.domain.retention import Expiry

class Told(SqlAnalytics):
    def purge(self, expiry, at_once=4):
        for removed in super().purge(expiry, at_once=4):
            print(json.dumps(removed.total), flush=True)
            yield removed

url, before = sys.argv[1:]
schedule = MaintenanceSchedule(delay=0.0, interval=0.05, purge=0.0, retry=0.05)
expiry = lambda now: Expiry.of_all(float(before), now)
keeper = Maintenance(lambda: Told(url), lambda: 0, expiry=expiry, schedule=schedule)
print(json.dumps("ready"), flush=True)
sys.stdin.readline()
with keeper:
    sys.stdin.read()
"""


class Keeper:
    """A process that looks after a store; what it removed at each step."""

    def __init__(self, url: str, before: float) -> None:
        command = [sys.executable, "-c", KEEPER, url, str(before)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._next() == "ready"

    def begin(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def steps(self) -> Iterator[int]:
        while (step := self._next()) is not None:
            yield step

    def end(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE)
        self.process.stdin.close()
        self.process.stdout.close()

    def _next(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line.endswith("\n") else None


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'riglm.db'}"
    return request.getfixturevalue("postgres_url")


def test_a_second_process_goes_on_where_a_killed_one_was_and_nothing_is_purged_twice(url):
    with SqlAnalytics(url) as store:
        for number in range(SESSIONS):
            store.record_many(a_used_session(1000.0 + number, ended=2000.0 + number)[1])
        expiry = Expiry.of_all(100_000.0, time.time())
        keepers = [Keeper(url, 100_000.0) for _ in range(2)]
        try:
            first, second = keepers
            first.begin()
            removed = [next(first.steps()) for _ in range(10)]
            second.begin()
            removed += [next(first.steps()) for _ in range(5)]
            first.process.kill()
            removed += list(first.steps())
            for step in second.steps():
                removed.append(step)
                if not store.count_expired(expiry).total:
                    break
        finally:
            for keeper in keepers:
                keeper.end()
        assert store.list_sessions() == []
    # The one that was killed may have removed what it could not tell any more.
    assert 4 * SESSIONS - 4 <= sum(removed) <= 4 * SESSIONS


async def test_the_setting_bounds_the_learned_pairs_in_the_store(tmp_path):
    storage = {"kind": "sqlite", "path": str(tmp_path / "riglm.db")}
    given = {"upstream": {"command": ["cat"]}, "storage": storage, "learning": {"max_pairs": 2}}
    maintenance = Container(settings=Settings.model_validate(given)).maintenance()
    times = [time.time() - at for at in range(20)]
    with SqlAnalytics(f"sqlite:///{storage['path']}") as store:
        store.record_many([a_learned_pair(updated_at=at) for at in times])
        assert maintenance.run_once()
        assert [pair.updated_at for pair in store.list_learned_pairs("minilm")] == times[:8]
