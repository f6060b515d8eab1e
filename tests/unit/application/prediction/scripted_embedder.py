"""An embedder that does what a test says, and a stage for prediction over it."""

import asyncio
import contextlib
import threading
from concurrent.futures import Future
from uuid import uuid4

from riglm.adapters.embedding.hashing import HashingEmbedder
from riglm.application.owners import ToolOwners
from riglm.application.prediction.prediction_service import PredictionService
from riglm.application.prediction.prediction_settings import PredictionSettings, Strategy
from riglm.application.prediction.prediction_state import PredictionState
from riglm.application.worker import Worker
from riglm.domain import jsonrpc
from riglm.domain.invocation import DiscoveryMethod, ToolInvocation
from riglm.domain.session import ClientInfo, IdentificationMethod, ProtocolEra, Session, Transport
from riglm.domain.tool import read_catalog
from riglm.ports.embedder import EmbedderPort, EmbedderUnavailableError
from riglm.ports.predictor import PREDICTORS
from tests.stores.memory import InMemoryAnalytics
from tests.waiting import WAIT_SECONDS

DAY = 86_400.0
NOON = 20_000 * DAY + DAY / 2


class ScriptedEmbedder(EmbedderPort):
    """Hashed vectors under the name of any model, which wait for `go` or fail when they are told to.

    Those of the texts in `kept` were stored before.

    With `held_after`, only answers after so many wait, and `held` tells when one does; with `fails_after`, those after
    so many fail.
    """

    def __init__(self):
        self._hashing = HashingEmbedder()
        self.name = "model-a"
        self.go = threading.Event()
        self.go.set()
        self.opening = threading.Event()
        self.opening.set()
        self.entered = threading.Event()
        self.error = None
        self.open = 0
        self.asked = []
        self.public = []
        self.held_after = self.fails_after = None
        self.kept = set()
        self.held = threading.Event()

    def __enter__(self):
        self.entered.set()
        assert self.opening.wait(WAIT_SECONDS)
        self.open = 1
        return self

    def __exit__(self, *_: object) -> None:
        self.open = 0

    @property
    def model(self):
        return self.name

    def embed(self, texts):
        self.asked.append(tuple(texts))
        if self.held_after is None or len(self.asked) > self.held_after:
            if not self.go.is_set():
                self.held.set()
            assert self.go.wait(WAIT_SECONDS)
        if self.fails_after is not None and len(self.asked) > self.fails_after:
            raise EmbedderUnavailableError("it ended")
        if self.error is not None:
            raise self.error
        return self._hashing.embed(texts)

    def embed_public(self, texts):
        self.public.append(tuple(texts))
        return self.embed(texts)

    def find_public(self, texts):
        return [self._hashing.embed([text])[0] if text in self.kept else None for text in texts]

    def status(self):
        return self._hashing.status()


class FailingStore(InMemoryAnalytics):
    def __enter__(self):
        raise OSError("the disk is gone")


def catalog(**tools):
    """A list of tools with these descriptions."""
    entries = [{"name": name, "description": said, "inputSchema": {}} for name, said in tools.items()]
    return read_catalog(jsonrpc.encode({"tools": entries}))


TOOLS = catalog(
    send_mail="Send a mail to somebody.", read_file="Read a file from the disk.", play_song="Play a song aloud."
)


def a_session(principal="", client="tester"):
    return Session(
        started_at=NOON,
        era=ProtocolEra.HANDSHAKE,
        transport=Transport.STDIO,
        method=IdentificationMethod.CONNECTION,
        client=ClientInfo(name=client),
        principal=principal,
    )


class Stage:
    """Prediction with a store and a clock that outlive it, so that it can be started again."""

    def __init__(self, store=None, **options):
        self.store = store or InMemoryAnalytics()
        self.embedder = ScriptedEmbedder()
        self.now = NOON
        self.scope = options.pop("scope", "principal")
        self.options = {"timeout_seconds": 5.0, **options}
        self.make_predictor = lambda: PREDICTORS.make("hybrid")
        self.put = []

    @contextlib.asynccontextmanager
    async def running(self):
        """A process that has this store; what it learns is stored when it ends."""

        def put(record, size):
            self.put.append(record)

        with Worker() as self.worker, Worker("riglm-learning") as self.learning:
            owners = ToolOwners("server")
            strategy = Strategy(name="scripted", key="scripted", make=self.make_predictor)
            self.service = PredictionService(
                self.worker,
                lambda settings, on_loop: PredictionState(
                    settings,
                    on_loop,
                    worker=self.worker,
                    learning=self.learning,
                    owners=owners,
                    open_store=lambda: self.store,
                    embedder=self.embedder,
                    put=put,
                    clock=lambda: self.now,
                ),
                owners,
                self.embedder.status(),
                PredictionSettings(strategy=strategy, scope=self.scope, most_pairs=1000, period=DAY),
                clock=lambda: self.now,
                **self.options,
            )
            try:
                yield self.service
            finally:
                await self.service.close()
        if not isinstance(self.store, FailingStore):
            self.store.record_many(self.put)
        self.put = []

    @contextlib.asynccontextmanager
    async def recalling(self):
        """A process that knows these tools and has loaded all that the store has."""
        async with self.running() as service:
            service.know(TOOLS)
            await self.recalled()
            yield service

    async def known(self):
        """Wait until all is loaded but the model."""
        self.service._loading.begin()
        async with asyncio.timeout(WAIT_SECONDS):
            while self.service.state is None:
                await asyncio.sleep(0)
            await self.service.state.scope_models.ready("", WAIT_SECONDS)

    async def recalled(self):
        """Wait until all is loaded, and the worker has nothing left to do."""
        await self.service._loading.loaded()
        await self.at_rest()

    async def at_rest(self):
        """Wait until the worker and the scope models have nothing left to do, and the loop has heard of it."""
        async with asyncio.timeout(WAIT_SECONDS):
            for _ in range(20):
                idle: Future = self.worker.submit(lambda: None, 99)
                await asyncio.wrap_future(idle)
                if self.service.state is not None:
                    await asyncio.gather(*self.service.state.scope_models._learning.values())
                await asyncio.sleep(0)

    def learned(self):
        """Learn all that waits to be learned, at once."""
        self.service.catch_up()

    def used_before(self, *tools, principal=""):
        """Record a session of an earlier run."""
        session = a_session(principal)
        calls = [
            ToolInvocation(
                id=uuid4(),
                session_id=session.id,
                upstream="server",
                tool=tool,
                timestamp=NOON - DAY + number,
                duration_ms=1.0,
                success=True,
                sequence_number=number,
                found=DiscoveryMethod.LISTED,
            )
            for number, tool in enumerate(tools, 1)
        ]
        self.store.record_many([session, *calls])
