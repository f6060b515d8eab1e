"""A process that records and is killed: what it was told to be stored is stored, once, and the file is sound."""

import random
import sqlite3
import subprocess
import sys
import threading
from uuid import UUID

import pytest

from riglm.adapters.analytics.sql import SqlAnalytics
from tests.waiting import WAIT_SECONDS

KILLS = 6

RECORDING = """
import sys
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.application.tracking.recorder import Recorder
from tests.records import a_learned_pair, a_session, an_exposure, an_invocation

session = a_session()
print("session", session.id, flush=True)
with Recorder(lambda: SqlAnalytics(sys.argv[1])) as recorder:
    recorder.put(session)
    recorder.put(an_exposure(session, "read", "write"))
    while True:
        calls = [an_invocation(session, "read") for _ in range(25)]
        for call in calls:
            recorder.put(call)
            recorder.put(a_learned_pair(id=call.id))
        if recorder.flush(30.0):
            print("stored", *(call.id for call in calls), flush=True)
"""


class Recording:
    """A process that records and says what was acknowledged."""

    def __init__(self, url):
        self.process = subprocess.Popen([sys.executable, "-c", RECORDING, url], stdout=subprocess.PIPE, text=True)
        self.session = None
        self.acknowledged = []
        self.first = threading.Event()
        self.done = threading.Event()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            match line.split() if line.endswith("\n") else []:
                case ["session", session]:
                    self.session = UUID(session)
                case ["stored", *ids]:
                    self.acknowledged += [UUID(each) for each in ids]
                    self.first.set()
        self.done.set()

    def kill(self):
        self.process.kill()
        self.process.wait(WAIT_SECONDS)
        self.reader.join(WAIT_SECONDS)
        self.process.stdout.close()


@pytest.fixture
def file(tmp_path):
    return tmp_path / "usage.db"


def test_no_acknowledged_record_is_lost_or_doubled_when_the_process_is_killed(file):
    url = f"sqlite:///{file}"
    chance = random.Random(7)
    recordings = []
    for number in range(KILLS):
        recording = Recording(url)
        recordings.append(recording)
        try:
            if number % 3:  # the others are killed while they import, open, upgrade or store for the first time
                assert recording.first.wait(60)
            recording.done.wait(chance.uniform(0.0, 0.6))
        finally:
            recording.kill()
    told = [each for each in recordings if each.acknowledged]
    with SqlAnalytics(url) as store:
        assert {each.session for each in told} <= {each.session.id for each in store.list_sessions()}
        learned = {pair.id for pair in store.list_learned_pairs("minilm", 1_000_000)}
        for each in told:
            assert set(each.acknowledged) <= learned
            stored = [call.id for call in store.list_invocations(each.session)]
            assert len(stored) == len(set(stored))
            assert set(each.acknowledged) <= set(stored)
            assert [exposure.shown for exposure in store.list_exposures(each.session)] == [("read", "write")]
    rows = sqlite3.connect(file)
    assert rows.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    rows.close()
    assert sum(len(each.acknowledged) for each in recordings) >= KILLS // 2 * 25


def test_two_processes_record_into_one_store_at_once(file):
    url = f"sqlite:///{file}"
    recordings = [Recording(url), Recording(url)]
    try:
        assert all(each.first.wait(60) for each in recordings)
    finally:
        for each in recordings:
            each.kill()
    with SqlAnalytics(url) as store:
        for each in recordings:
            assert set(each.acknowledged) <= {call.id for call in store.list_invocations(each.session)}
