"""Scripted prediction and recorded use, sessions, catalogs, and a filter over them."""

import numpy as np

from riglm.application.filtering.filtering_service import FilteringService
from riglm.application.filtering.meta_tools import MetaTools
from riglm.application.tool_lists.selection import NullPrediction, UsageSource
from riglm.domain import jsonrpc
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.learning import Usage, WarmSet, WarmSetKey
from riglm.domain.prediction import Context, Prediction, ToolMatch, ToolSearchResult
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.session import ClientInfo, IdentificationMethod, ProtocolEra, Session, Transport
from riglm.domain.tool import read_catalog

ALL = [f"tool{number:02}" for number in range(30)]


class ScriptedPrediction(NullPrediction):
    """Expects the tools in `likes` and `next_uses`, and those in `needs` in a context, or what `signals` add up to."""

    is_ready = True
    is_begun = False

    def __init__(self):
        self.likes = ()
        self.signals = {}
        self.needs = {}
        self.next_uses = {}
        self.confidence = 0.5
        self.evidence = 1e9
        self.fallback = ""
        self.found = ToolSearchResult(hits=(), near=(), abstained=True)
        self.error = None
        self.training_queue = []
        self.marks = []
        self.known = []
        self.queries = []

    def know(self, catalog):
        self._fail()
        self.known.append(catalog)

    def predict(self, session, state, names, *, explain=False):
        self._fail()
        if not (self.likes or self.signals or self.needs or self.next_uses):
            return None
        worth = {name: 0.9 - 0.01 * place for place, name in enumerate(self.likes)}
        worth |= self.needs if state.context is not None else {}
        worth |= self.next_uses
        scores = np.array([worth.get(name, 1e-6) for name in names])
        parts = {signal: np.array([values.get(name, 0.0) for name in names]) for signal, values in self.signals.items()}
        if parts:
            scores = 1 / (1 + np.exp(-sum(parts.values())))
        return Prediction(
            scores=scores,
            contributions=parts if explain else {},
            confidence=self.confidence,
            evidence=self.evidence,
            fallback=self.fallback,
        )

    def begin(self):
        self.is_begun = True

    async def acquaint(self, session):
        self._fail()

    def context_confidence(self, session, state):
        self._fail()
        return self.confidence if state.context is not None else 0.0

    async def set_context(self, session, state, text):
        self._fail()
        state.context = Context(text=text)

    async def search(self, session, query, limit, allowed):
        self._fail()
        self.queries.append((query, limit))
        return self.found

    def called(self, session, state, tool, found):
        self._fail()
        self.training_queue.append((tool, found, tuple(state.calls)))

    def marked(self, session, state, tool, *, relevant):
        self._fail()
        self.marks.append((tool, relevant))

    def status(self):
        self._fail()
        return {"embeddings": {"provider": "fastembed"}, "advice": "ask"}

    def finds(self, *names, near=(), probability=0.9, scores=()):
        """Let searches find these, each needed with this probability, the most relevant first or by their scores."""
        scores = scores or [1.0 - 0.01 * place for place in range(len(names))]
        hits = tuple(
            ToolMatch(name=name, score=score, probability=probability, why=f"{name} fits")
            for name, score in zip(names, scores, strict=True)
        )
        self.found = ToolSearchResult(hits=hits, near=near, abstained=not hits)

    def _fail(self):
        if self.error is not None:
            raise self.error


class ScriptedUsage(UsageSource):
    """Recorded use that is what a test says."""

    def __init__(self):
        self.learned = None
        self.refreshed = []
        self.error = None

    async def refresh(self, session, candidates):
        self._fail()
        self.refreshed.append(session)

    def warm_set(self, session):
        self._fail()
        return self.learned

    def _fail(self):
        if self.error is not None:
            raise self.error


def a_session(client="", era=ProtocolEra.HANDSHAKE):
    return Session(
        started_at=0.0,
        era=era,
        transport=Transport.STDIO,
        method=IdentificationMethod.CONNECTION,
        client=ClientInfo(name=client),
    )


def a_catalogue(*names, count=0, size=400):
    """Tools of these names, or so many numbered ones, whose definitions have about `size` bytes."""
    names = names or tuple(f"tool{number:02}" for number in range(count))
    entries = [b'{"name":%b,"description":%b}' % (jsonrpc.encode(name), jsonrpc.encode("x" * size)) for name in names]
    return read_catalog(b'{"tools":[%b]}' % b",".join(entries))


def names_in(raw):
    """The names of the entries of a raw array."""
    return [jsonrpc.text(jsonrpc.members(entry)["name"]) for entry in jsonrpc.elements(raw)]


class Stage:
    """A filter with scripted prediction and scripted use, and a clock that stands still until it is moved."""

    def __init__(self, *, overrides=(), predicted=True, prices=None, owner=lambda name: ("", name), **rules):
        rules.setdefault("min_tools", 1)
        self.prediction = ScriptedPrediction()
        self.use = ScriptedUsage()
        self.now = 1000.0
        self.overrides = tuple(overrides)
        self.filtering = FilteringService(
            FilteringSettings(**rules),
            self.prediction if predicted else None,
            usage=self.use if predicted else None,
            prices=prices,
            predictor="hybrid",
            overrides=lambda: self.overrides,
            owner=owner,
            clock=lambda: self.now,
        )
        self.meta_tools = MetaTools(self.filtering)

    def learned(self, probabilities, sessions=10**9, requests=12.0, others=0.0, predictor="hybrid"):
        """Let the next sessions need these tools with these probabilities, by so many recorded sessions.

        `others` is how many tools a session needs in addition, `predictor` the strategy that estimated it.
        """
        usage = Usage(
            evidence=sessions,
            probabilities=probabilities,
            requests=requests,
            distinct_tools=sum(probabilities.values()) + others,
        )
        self.use.learned = WarmSet(
            key=WarmSetKey(), strategy="hybrid", predictor=predictor, usage=usage, created_at=self.now
        )

    def shown(self, session, catalog):
        """Return the names of the upstream's tools in the list of a session."""
        return list(self.filtering.compose(session, catalog).shown)

    def calls(self, session, *tools, found=DiscoveryMethod.LISTED, turn_key=""):
        """Call tools."""
        for tool in tools:
            self.filtering.called(session, tool, found, turn_key)

    async def about(self, session, text, *needs, confidence=0.5, probability=0.9):
        """Set a context that needs these tools; return True if a list change is announced."""
        self.prediction.needs, self.prediction.confidence = dict.fromkeys(needs, probability), confidence
        return await self.filtering.set_context(session, text)
