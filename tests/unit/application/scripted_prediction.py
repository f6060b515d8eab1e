"""A prediction that says what it is told to, sessions, catalogues, and a filter over them."""

from types import SimpleNamespace

import numpy as np

from riglm.application.filtering.meta_tools import MetaTools
from riglm.application.filtering.service import FilteringService
from riglm.application.lists.predicting import Predicting
from riglm.domain import jsonrpc
from riglm.domain.invocation import Found
from riglm.domain.prediction import Context, Prediction
from riglm.domain.schemas.filtering import Filtering
from riglm.domain.session import Client, Era, Method, Session, Transport
from riglm.domain.tool import read_catalogue


class ScriptedPrediction(Predicting):
    """Likes the tools in `likes`, best first, and is as sure as `confidence`; `signals` say more of some tools."""

    def __init__(self):
        self.likes = ()
        self.signals = {}
        self.confidence = 0.5
        self.most = 3
        self.warm = None
        self.found = SimpleNamespace(hits=(), near=(), abstained=True)
        self.error = None
        self.lessons = []
        self.marks = []
        self.prepared = []
        self.known = []
        self.queries = []
        self.asked = 0

    def know(self, catalogue):
        self._fail()
        self.known.append(catalogue)

    def predict(self, session, state, names, *, explain=False):
        self._fail()
        self.asked += 1
        if not self.likes and not self.signals:
            return None
        worth = {name: float(len(self.likes) - place) for place, name in enumerate(self.likes)}
        parts = {"likes": np.array([worth.get(name, 0.0) for name in names])}
        for signal, values in self.signals.items():
            parts[signal] = np.array([values.get(name, 0.0) for name in names])
        scores = sum(parts.values())
        return Prediction(scores=scores, contributions=parts if explain else {}, confidence=self.confidence)

    async def acquaint(self, session):
        self._fail()

    def context_confidence(self, session, state):
        self._fail()
        return self.confidence if state.context is not None else 0.0

    def size(self, session, prediction):
        return self.most

    async def prepare(self, session, names, profile, most):
        self._fail()
        self.prepared.append((names, profile, most))

    def warm_set(self, session, names, profile):
        self._fail()
        return self.warm and tuple(name for name in self.warm if name in names)

    async def set_context(self, session, state, text):
        self._fail()
        state.context = Context(text=text)

    async def search(self, session, query, limit, allowed):
        self._fail()
        self.queries.append((query, limit))
        return self.found

    def called(self, session, state, tool, found, names):
        self._fail()
        self.lessons.append((tool, found, tuple(state.calls)))

    def marked(self, session, state, tool, *, relevant):
        self._fail()
        self.marks.append((tool, relevant))

    def status(self):
        self._fail()
        return {"embeddings": {"provider": "fastembed"}, "advice": "ask"}

    def finds(self, *names, near=()):
        """Let searches find these."""
        hits = tuple(SimpleNamespace(name=name, score=1.0, why=f"{name} fits") for name in names)
        self.found = SimpleNamespace(hits=hits, near=near, abstained=not hits)

    def _fail(self):
        if self.error is not None:
            raise self.error


def a_session(client="", era=Era.HANDSHAKE):
    return Session(
        started_at=0.0, era=era, transport=Transport.STDIO, method=Method.CONNECTION, client=Client(name=client)
    )


def a_catalogue(*names, count=0, size=400):
    """Tools of these names, or so many numbered ones, whose definitions have about `size` bytes."""
    names = names or tuple(f"tool{number:02}" for number in range(count))
    entries = [b'{"name":%b,"description":%b}' % (jsonrpc.encode(name), jsonrpc.encode("x" * size)) for name in names]
    return read_catalogue(b'{"tools":[%b]}' % b",".join(entries))


def names_in(raw):
    """The names of the entries of a raw array."""
    return [jsonrpc.text(jsonrpc.members(entry)["name"]) for entry in jsonrpc.elements(raw)]


class Stage:
    """A filter with a scripted prediction, and a clock that stands still until it is moved."""

    def __init__(self, *, overrides=(), predicted=True, **rules):
        rules.setdefault("passthrough_below", {"tools": 0})
        rules.setdefault("min_tools", 1)
        self.prediction = ScriptedPrediction()
        self.now = 1000.0
        self.overrides = tuple(overrides)
        self.filtering = FilteringService(
            Filtering(**rules),
            self.prediction if predicted else None,
            predictor="hybrid",
            overrides=lambda: self.overrides,
            clock=lambda: self.now,
        )
        self.meta_tools = MetaTools(self.filtering)

    def shown(self, session, catalogue):
        """The names of the upstream's tools in the list of a session."""
        return list(self.filtering.compose(session, catalogue).selection.shown)

    def calls(self, session, *tools, found=Found.LISTED, turn_key=""):
        """Call tools; whether any of the calls changed the list."""
        changes = [self.filtering.called(session, tool, found, turn_key) for tool in tools]
        return any(changes)

    async def about(self, session, text, *likes, confidence=0.5):
        """Set a context in which these tools are likely; whether the list changed."""
        self.prediction.likes, self.prediction.confidence = likes, confidence
        return await self.filtering.set_context(session, text)
