"""The index says what tools say now, and counts vectors as they come."""

import threading

import numpy as np

from riglm.application.owners import ToolOwners
from riglm.application.prediction.prediction_state import ToolIndex
from riglm.application.worker import Urgency, Worker
from riglm.domain.prediction import Context
from riglm.domain.retrieval.pairs import LearnedPairs
from riglm.domain.retrieval.words import request_texts
from tests.unit.application.prediction.scripted_embedder import ScriptedEmbedder, catalog
from tests.waiting import WAIT_SECONDS

LEDGER, ZEBRA = ({"keep": said, "send": "Send a mail."} for said in ("Keep a ledger.", "Feed a zebra."))


class Bench:
    """An index over a worker of its own."""

    def __init__(self, pairs=None):
        self.embedder = ScriptedEmbedder()
        self.told = []
        self.worker = Worker()
        pairs = pairs or LearnedPairs()
        self.index = ToolIndex(self.worker, self.embedder, pairs, ToolOwners("server"), self.told.append)

    def __enter__(self):
        self.worker.start()
        self.worker.submit(self.index.begin_embedding).result(30)
        return self

    def __exit__(self, *_: object) -> None:
        self.embedder.go.set()
        self.worker.close(10)

    def know(self, **tools):
        """A list came, and all that follows from it was done."""
        self.index.know(catalog(**tools))
        self.at_rest()

    def at_rest(self):
        """Wait until the worker has nothing left to do."""
        self.worker.submit(lambda: None, 99).result(30)

    def asked(self, text):
        vector = self.embedder._hashing.embed(request_texts(text))
        return Context(text=text, vector=vector, model=self.embedder.name)

    def found(self, text):
        return [hit.name for hit in self.index.retriever.search(self.asked(text), 1).hits]


def test_a_description_that_comes_back_before_the_other_was_read_is_what_counts():
    with Bench() as bench:
        bench.know(**LEDGER)
        first = bench.index.fingerprint("keep")
        held = threading.Event()
        bench.worker.submit(lambda: held.wait(WAIT_SECONDS), Urgency.AWAITED)
        for described in (ZEBRA, LEDGER):
            bench.index.know(catalog(**described))
        held.set()
        bench.at_rest()
        assert bench.index.fingerprint("keep") == first
        assert bench.index.retriever.search(Context(text="zebra"), 1).abstained


def test_vectors_count_while_others_are_still_made():
    tools = {f"tool{number}": f"It is about subject{number}." for number in range(64)}
    with Bench() as bench:
        bench.embedder.held_after = 3
        bench.embedder.go.clear()
        bench.index.know(catalog(**tools))
        assert bench.embedder.held.wait(WAIT_SECONDS)
        counted = bench.index.counts()[1]
        assert bench.index.counts()[0] == 64
        assert 8 <= counted <= 24
        assert bench.index.weights.semantic > 0
        similarity = bench.index.retriever.similarity(bench.asked("subject1"))[1]
        assert np.count_nonzero(similarity) <= counted
        bench.embedder.go.set()
        bench.at_rest()
        assert bench.index.counts() == (64, 64)
