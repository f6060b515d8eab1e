"""Whatever the store, the spool and the queue do: every record is accounted for, and what is stored is what was put."""

import tempfile
import threading
from dataclasses import replace
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from riglm.adapters.spool.sqlite_spool import SqliteSpool, survey
from riglm.application.tracking.recorder import Backoff, QueueLimits
from riglm.ports.analytics import LearnedPairsDeleted, SessionClosed
from riglm.ports.spool import SpoolUnavailableError
from tests.records import a_learned_pair, a_session, an_exposure, an_invocation
from tests.stores.memory import InMemoryAnalytics
from tests.unit.application.tracking.shop import SOON, Eager, Shop, obeys_the_law
from tests.waiting import wait_until

LIMITS = QueueLimits(records=1000, batch_records=7, batch_seconds=0.001, high_water=0.02)


class Even(Backoff):
    """Pauses without jitter: hypothesis takes the random numbers of other threads for its own test's."""

    def delay(self, failures):
        return 0.002


class Shelf(SqliteSpool):
    """A spool that can fail."""

    fails = False

    def append(self, records):
        if self.fails:
            raise SpoolUnavailableError("the shelf is broken")
        return super().append(records)


class Recording(RuleBasedStateMachine):
    """A recorder under random faults, and beside it a store that gets every record at once."""

    @initialize()
    def begin(self):
        self.folder = tempfile.TemporaryDirectory()
        self.shop = Shop()
        self.model = InMemoryAnalytics()
        self.sessions = []
        self.pairs = []
        self.put = 0
        self.start()

    def start(self):
        self.shelf = Shelf(Path(self.folder.name))
        shelf, shop = self.shelf, self.shop
        self.recorder = Eager(
            lambda: shop,
            open_spool=lambda: shelf,
            limits=LIMITS,
            backoff=Even(),
            timeout_seconds=0.01,
            close_timeout=0.05,
        )
        self.recorder.start()

    def record(self, *records):
        for each in records:
            self.model.record_many([each])
            self.recorder.put(each)
            self.put += 1

    @rule()
    def opens_a_session(self):
        self.sessions.append(a_session())
        self.record(self.sessions[-1])

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), count=st.integers(1, 30))
    def calls(self, data, count):
        session = data.draw(st.sampled_from(self.sessions))
        self.record(*(an_invocation(session, "read") for _ in range(count)), an_exposure(session, "read"))

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def learns_of_a_session(self, data):
        at = data.draw(st.integers(0, len(self.sessions) - 1))
        self.sessions[at] = replace(self.sessions[at], tools_available=(f"tool {self.put}",))
        self.record(self.sessions[at])

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def ends_a_session(self, data):
        session = data.draw(st.sampled_from(self.sessions))
        self.record(SessionClosed(session_id=session.id, ended_at=float(self.put)))

    @rule()
    def learns_a_pair(self):
        self.pairs.append(a_learned_pair(updated_at=float(self.put)))
        self.record(self.pairs[-1])

    @precondition(lambda self: self.pairs)
    @rule(data=st.data(), again=st.booleans())
    def forgets_a_pair(self, data, again):
        pair = data.draw(st.sampled_from(self.pairs))
        self.record(LearnedPairsDeleted(ids=(pair.id,)))
        if again:
            self.record(replace(pair, updated_at=float(self.put)))

    @rule(away=st.booleans())
    def the_store_comes_and_goes(self, away):
        self.shop.away = away

    @rule(hangs=st.booleans())
    def the_store_hangs_and_goes_on(self, hangs):
        (self.shop.gate.clear if hangs else self.shop.gate.set)()

    @rule(fails=st.booleans())
    def the_spool_fails_and_works(self, fails):
        self.shelf.fails = fails

    @rule()
    def time_passes(self):
        threading.Event().wait(0.02)

    @precondition(lambda self: not self.shelf.fails)
    @rule()
    def everything_put_is_safe_soon_where_the_spool_works(self):
        assert self.recorder.flush(SOON)
        assert self.recorder.counts().queued == 0

    @precondition(lambda self: not self.shelf.fails)
    @rule()
    def riglm_ends_and_starts_anew(self):
        counts = self.recorder.close()
        assert obeys_the_law(self.recorder)
        assert (counts.queued, counts.dropped) == (0, 0)
        self.shop.gate.set()  # a process that is gone hangs no more
        self.recorder._storing.join(SOON)
        self.start()

    @invariant()
    def every_record_is_accounted_for(self):
        if hasattr(self, "recorder"):
            assert obeys_the_law(self.recorder)
            assert self.recorder.counts().dropped == 0

    def teardown(self):
        if not hasattr(self, "recorder"):
            return
        self.shop.away = self.shelf.fails = False
        self.shop.gate.set()
        try:
            assert self.recorder.flush(SOON)
            wait_until(lambda: survey(Path(self.folder.name)) == [])
            counts = self.recorder.counts()
            assert counts.accepted == counts.stored
            assert told(self.shop) == told(self.model)
        finally:
            self.recorder.close()
            self.folder.cleanup()


def told(store):
    """All that a store holds, in values that can be compared."""
    sessions = {each.session.id: each for each in store.list_sessions(10_000)}
    return {
        "sessions": {id_: (each.session.ended_at, each.session.tools_available) for id_, each in sessions.items()},
        "calls": {id_: [call.id for call in store.list_invocations(id_)] for id_ in sessions},
        "exposures": {id_: sorted(each.id for each in store.list_exposures(id_)) for id_ in sessions},
        "pairs": {pair.id: pair.updated_at for pair in store.list_learned_pairs("minilm", 10_000)},
    }


TestRecording = Recording.TestCase
TestRecording.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
