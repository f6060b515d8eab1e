"""What is done on other threads for a question, and for how long it is waited for."""

import threading
from collections.abc import Iterator
from typing import Any, Self

import pytest

from riglm.adapters.embedding.hashing import HashingEmbedder
from riglm.application.knowledge.retrieval import QuestionEmbedder
from riglm.application.worker import StoreThread, Worker
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.domain.knowledge import Table
from riglm.ports.embedder import Embedders, EmbedderUnavailableError
from riglm.ports.knowledge import Scope
from tests.stores.memory import InMemoryKnowledge
from tests.unit.application.knowledge.voices import embedded
from tests.waiting import WAIT_SECONDS

MINE = Scope(owner="")


class Model(HashingEmbedder):
    """A model that is told what to do, and notes by whom it was opened."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.closed = 0
        self.gate = threading.Event()
        self.gate.set()
        self.is_down = False

    def __enter__(self) -> Self:
        self.opened.append(threading.current_thread().name)
        return self

    def __exit__(self, *_: object) -> None:
        self.closed += 1

    def embed(self, texts: Any) -> Any:
        assert self.gate.wait(WAIT_SECONDS)
        if self.is_down:
            raise EmbedderUnavailableError("it is down")
        return super().embed(texts)


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker("prediction") as made:
        yield made


@pytest.fixture
def model() -> Iterator[Model]:
    made = Model()
    yield made
    made.gate.set()


def asking(worker: Worker, model: Model, **more: Any) -> QuestionEmbedder:
    return QuestionEmbedder(worker, lambda: Embedders(always=model, chosen=model), **{"seconds": 10, **more})


async def test_a_model_that_hangs_is_waited_for_so_long_and_no_longer(worker: Worker, model: Model):
    embed = asking(worker, model, seconds=0.05)
    model.gate.clear()
    with pytest.raises(EmbedderUnavailableError):
        await embed("falcon")


async def test_dimensions_that_were_thought_to_be_others_are_told_once_and_the_model_counts(
    worker: Worker, model: Model, caplog: pytest.LogCaptureFixture
):
    embed = asking(worker, model, dimensions=1536)
    assert (await embed("falcon"))[1].dimensions == 256
    await embed("falcon")
    (record,) = caplog.records
    assert (record.levelname, record.__dict__["configured"], record.__dict__["dim"]) == ("WARNING", 1536, 256)


class Away(InMemoryKnowledge):
    """A store that can be away, or hang."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.opened: list[str] = []
        self.closed = 0
        self.gate = threading.Event()
        self.gate.set()

    def __enter__(self) -> Self:
        if self.is_away:
            raise AnalyticsUnavailableError("it is away")
        self.opened.append(threading.current_thread().name)
        return self

    def __exit__(self, *_: object) -> None:
        self.closed += 1

    def nearest(self, *asked: Any) -> Any:
        assert self.gate.wait(WAIT_SECONDS)
        return super().nearest(*asked)


def nearest(store):
    return list(store.nearest(Table.THOUGHTS, embedded("falcon"), MINE, 5))


async def test_a_store_that_could_not_be_opened_is_tried_again():
    store = Away()
    store.is_away = True
    aside = StoreThread(lambda: store, "riglm-test", timeout_seconds=10)
    with pytest.raises(AnalyticsUnavailableError):
        await aside.ask(nearest)
    store.is_away = False
    assert await aside.ask(nearest) == []
    aside.close()


async def test_a_store_that_hangs_is_waited_for_so_long_and_no_longer():
    store = Away()
    store.gate.clear()
    aside = StoreThread(lambda: store, "riglm-test", timeout_seconds=0.05)
    with pytest.raises(AnalyticsUnavailableError):
        await aside.ask(nearest)
    store.gate.set()
    aside.close()
