"""Usage statistics, shared by the hybrid, and the strategies frequency, cooccurrence, sequence and server."""

from abc import abstractmethod
from collections.abc import Hashable
from functools import lru_cache
from itertools import repeat
from time import gmtime
from typing import Final

import numpy as np

from riglm.adapters.prediction.counts import Counts, IndexedInput, guess, log_odds
from riglm.domain.prediction import Prediction, PredictionInput, Scores
from riglm.domain.retrieval.words import split_name, words
from riglm.ports.predictor import PredictorPort

_HOURS: Final = 4
_HALF_SURE: Final = 20.0  # sessions after which a predictor that only counts reports half of its maximum confidence
_MAX_SESSIONS: Final = 400.0
_WIDER_SESSIONS: Final = 2.0  # that the share in the next wider scope counts as
_MOMENT_SESSIONS: Final = 5.0
_ALL: Final = ""


class SessionCounts:
    """Number of sessions, of those that used a tool or a server, that began a server with a tool, or used two servers.

    All are halved together once there are 400, so that their ratios are shares of sessions and late ones weigh more.
    """

    def __init__(self) -> None:
        self._counts = Counts(max_total=np.inf)

    @property
    def sessions(self) -> float:
        """The number of sessions."""
        return self._counts.total(("sessions", _ALL))

    @property
    def confidence(self) -> float:
        """How much was counted recently, between 0 and 1."""
        return self.sessions / (self.sessions + _HALF_SURE)

    def learn(self, indexed: IndexedInput, tool: str, weight: float) -> None:
        """Count the first use of a tool in a session."""
        if tool in indexed.ages:
            return
        scopes = (*_scopes(indexed.prediction_input), *_moments(indexed.prediction_input.time))
        if not indexed.calls:
            for scope in scopes:
                self._counts.add(("sessions", scope), "", 1.0)
        for scope in scopes:
            self._counts.add(("tools", scope), tool, weight)
        server = indexed.server_of(tool)
        others = {indexed.server_of(other) for other in indexed.ages}
        if server not in others:
            self._counts.add("begins", tool, weight)
            self._counts.add("servers", server, weight)
            for one in others:
                self._counts.add(("with", one), server, weight)
                self._counts.add(("with", server), one, weight)
        if self.sessions >= _MAX_SESSIONS:
            self._counts.halve()

    def share(self, indexed: IndexedInput) -> Scores:
        """Return P(a session uses the candidate), backed off from the narrowest scope to all and to its server.

        (sessions with the tool + 2 · share in the wider scope) / (sessions + 2); in the widest, the share of sessions
        that use its server, divided by half of the server's tools, is used for that.
        """
        found = np.minimum(2.0 * self.of_servers(indexed) / np.maximum(indexed.server_sizes, 2.0), 0.5)
        for scope in sorted(
            _scopes(indexed.prediction_input), key=lambda each: -self._counts.total(("sessions", each))
        ):
            found = self._backed_off(indexed, scope, found, _WIDER_SESSIONS)
        return np.minimum(found, 1.0)

    def moment(self, indexed: IndexedInput) -> Scores:
        """Return log(share at this time of day and weekday / overall share), summed; zeros for an unknown time."""
        overall, found = self._backed_off(indexed, _ALL, np.full(indexed.size, 0.01), 1.0), np.zeros(indexed.size)
        for name in _moments(indexed.prediction_input.time):
            found += np.log(self._backed_off(indexed, name, overall, _MOMENT_SESSIONS) / overall)
        return found

    def of_servers(self, indexed: IndexedInput) -> Scores:
        """Return the share of sessions that use the server of each candidate."""
        found: Scores = (indexed.by_server(self._counts.row("servers")) + 0.5) / (self.sessions + 2.0)
        return np.minimum(found, 1.0)

    def within(self, indexed: IndexedInput) -> tuple[Scores, Scores]:
        """Return, of the sessions that use its server, the shares that use each candidate and that begin with it."""
        sessions, sizes = indexed.by_server(self._counts.row("servers")), indexed.server_sizes
        tools, begins = (indexed.spread(self._counts.row(row)) for row in (("tools", _ALL), "begins"))
        within = (tools + 0.5 * np.minimum(1.0, 3.0 / sizes)) / (sessions + 1.0)
        return np.minimum(within, 1.0), (begins + 0.3 / sizes) / (sessions + 0.3)

    def joined(self, indexed: IndexedInput) -> Scores:
        """Return the probability that a session with the servers in use uses the server of each candidate."""
        with_server, in_use = self._counts.row("servers"), {indexed.server_of(tool) for tool in indexed.latest}
        found, prior = np.zeros(indexed.size), 0.5 * self.of_servers(indexed)
        for server in in_use:
            together = indexed.by_server(self._counts.row(("with", server)))
            found += (together + prior) / (with_server.get(server, 0.0) + 0.5)
        return np.minimum(found / max(len(in_use), 1), 1.0)

    def _backed_off(self, indexed: IndexedInput, scope: Hashable, wider: Scores, trust: float) -> Scores:
        sessions = self._counts.total(("sessions", scope))
        if not sessions:
            return wider
        found: Scores = (indexed.spread(self._counts.row(("tools", scope))) + trust * wider) / (sessions + trust)
        return found


def _scopes(prediction_input: PredictionInput) -> tuple[Hashable, ...]:
    """Return the scopes that a session counts in, from all to its project."""
    named = ("client", "profile", "principal", "project")
    found = [(name, value) for name in named if (value := getattr(prediction_input, name))]
    return (_ALL, *found)


def _moments(time: float) -> tuple[Hashable, ...]:
    """Return the part of the day and the weekday of a time, in UTC; none for an unknown time."""
    if not time:
        return ()
    moment = gmtime(time)
    return ("hour", moment.tm_hour // _HOURS), ("weekday", moment.tm_wday)


FADING: Final = 0.9
"""Weight of a tool in use relative to the one that was used after it."""

_DISTANT: Final = 0.95  # weight of two tools of one session, to the power of the number of calls between them


class CooccurrenceMatrix:
    """Number of sessions that used two tools, weighted by distance; a tool with itself: all its sessions."""

    def __init__(self) -> None:
        self._rows = Counts()

    def learn(self, indexed: IndexedInput, tool: str, weight: float) -> None:
        """Count the tools in use when a session first uses a tool."""
        if tool in indexed.ages:
            return
        self._rows.add(tool, tool, weight)
        for other in indexed.latest:
            near = weight * _DISTANT ** indexed.ages[other]
            self._rows.add(other, tool, near)
            self._rows.add(tool, other, near)

    def share(self, indexed: IndexedInput, otherwise: Scores, sessions: float = 0.0) -> Scores:
        """Return P(a session with the tools in use uses the candidate): the mean over these tools.

        Per tool (count + otherwise) / (its sessions + 1). Tools that were used later weigh more, and those that are
        rare among the number of `sessions`; one that no session has used says nothing.
        """
        found, total = np.zeros(indexed.size), 0.0
        for place, tool in enumerate(indexed.latest):
            row = self._rows.row(tool)
            count = row.get(tool, 0.0)
            weight = FADING**place * (float(np.log((max(sessions, count) + 2) / (count + 1))) + 0.1)
            weight *= count / (count + 1.0)
            found += weight * (indexed.spread(row) + otherwise) / (count + 1.0)
            total += weight
        return found / total if total else otherwise


_MAX_RUN_LENGTH: Final = 4


class MarkovChains:
    """Markov chains of order 2, 1 and 0 with back-off, separate for repeats and for tools new to their session."""

    def __init__(self) -> None:
        self._counts = Counts()

    def learn(self, indexed: IndexedInput, tool: str, weight: float) -> None:
        """Count a transition."""
        fresh = tool not in indexed.ages
        for past in _pasts(indexed, fresh=fresh):
            self._counts.add(past, tool, weight)
        for past in _rhythms(indexed):
            self._counts.add(past, "fresh" if fresh else "repeat", weight)

    def share(self, indexed: IndexedInput, *, fresh: bool) -> Scores:
        """Return the probability of each candidate, given that a fresh tool, or that a repeat comes next."""
        found = np.full(indexed.size, 1.0 / max(indexed.size, 1))
        for past in _pasts(indexed, fresh=fresh):
            found = self._counts.share(indexed, past, found)
        return found

    def fresh_odds(self, indexed: IndexedInput) -> float:
        """Return the log-odds that the next tool is one that the session has not used."""
        likely = 0.5
        for past in _rhythms(indexed):
            likely = (self._counts.row(past).get("fresh", 0.0) + 2 * likely) / (self._counts.total(past) + 2)
        return float(log_odds(np.array(likely)))


def _pasts(indexed: IndexedInput, *, fresh: bool) -> tuple[Hashable, ...]:
    """Return the circumstances of a call, least specific first: none and the last two different tools, or the start.

    For repeats they are the last two calls.
    """
    recent = tuple(indexed.ages)[:2] if fresh else indexed.calls[:-3:-1]
    kind = "fresh" if fresh else "repeat"
    return tuple((kind, *recent[:order]) for order in range(len(recent) + 1)) if recent else ("start",)


def _rhythms(indexed: IndexedInput) -> tuple[Hashable, ...]:
    """Return the circumstances that show whether a new tool is due, least specific first."""
    if not indexed.calls:
        return ("first turn",)
    last = indexed.calls[-1]
    run = next((age for age, tool in enumerate(reversed(indexed.calls)) if tool != last), len(indexed.calls))
    return "any turn", ("turn", last), ("turn", last, min(run, _MAX_RUN_LENGTH))


_MAX_CALLS: Final = 20


def nearness(indexed: IndexedInput) -> Scores:
    """Return how recently the server of each candidate was used, between 0 and 1."""
    last: dict[str, float] = {}
    for age, tool in enumerate(reversed(indexed.calls[-_MAX_CALLS:])):
        last.setdefault(indexed.server_of(tool), FADING**age)
    last.pop("", None)
    return indexed.by_server(last)


_MAX_WORDS: Final = 12
_TRUST: Final = 5.0


@lru_cache(maxsize=4096)
def _words(tool: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words(split_name(tool))))[:_MAX_WORDS]


class _Lexicon:
    """The words of a catalog, the `share` of each, and means over the words of a candidate; rare words weigh more."""

    def __init__(self, candidates: tuple[str, ...]) -> None:
        self.numbers: dict[str, int] = {}
        pairs = [
            (index, self.numbers.setdefault(word, len(self.numbers)))
            for index, tool in enumerate(candidates)
            for word in _words(tool)
        ]
        self._owners, self._members = np.array(pairs, np.intp).reshape(-1, 2).T
        self._size = len(candidates)
        frequency = np.bincount(self._members, minlength=len(self.numbers))
        self.share: Scores = frequency / max(len(pairs), 1)
        self._rarity: Scores = np.log((self._size + 1) / (frequency + 1))
        self._weight = self._sum(self._rarity) + 1.0

    def mean(self, amounts: Scores) -> Scores:
        return self._sum(amounts * self._rarity) / self._weight

    def _sum(self, amounts: Scores) -> Scores:
        return np.bincount(self._owners, amounts[self._members], self._size).astype(np.float64)


_lexicon = lru_cache(maxsize=8)(_Lexicon)


class NameWords:
    """Which words in the names of fresh tools follow which words of the tool before."""

    def __init__(self) -> None:
        self._words = Counts()

    def learn(self, indexed: IndexedInput, tool: str, weight: float) -> None:
        """Count the words of a fresh tool."""
        if tool not in indexed.ages and indexed.calls:
            for before in _words(indexed.calls[-1]):
                for word in _words(tool):
                    self._words.add(before, word, weight)

    def follows(self, indexed: IndexedInput) -> Scores:
        """Return for each candidate the mean of log(P(word | word before) / P(word)) over its words."""
        lexicon = _lexicon(indexed.candidates)
        found = np.zeros(len(lexicon.numbers))
        past = _words(indexed.calls[-1]) if indexed.calls else ()
        for before in past:
            row = self._words.row(before)
            counts = np.fromiter(map(row.get, lexicon.numbers, repeat(0.0)), np.float64, len(found)) if row else 0.0
            trust = _TRUST + len(row)
            found += np.log((counts + trust * lexicon.share) / (self._words.total(before) + trust) / lexicon.share)
        return lexicon.mean(found / max(len(past), 1))


class UsageStatistics:
    """All usage statistics."""

    def __init__(self) -> None:
        self.sessions = SessionCounts()
        self.cooccurrence = CooccurrenceMatrix()
        self.chains = MarkovChains()
        self.words = NameWords()

    def learn(self, indexed: IndexedInput, tool: str, weight: float) -> None:
        """Count a call."""
        for statistic in (self.sessions, self.cooccurrence, self.chains, self.words):
            statistic.learn(indexed, tool, weight)


_MOMENT_WEIGHT: Final = 0.3
_TOOLS_OF_SERVER: Final = 3.0  # that a session is taken to use of a server in use

FURTHER_CALLS: Final = float(np.log(3))
"""A tool that is next with a small probability is among the next three with three times that."""


class _UsagePredictor(PredictorPort):
    """A strategy that learns by counting alone, and whose log-odds are a sum of parts."""

    def __init__(self) -> None:
        self._usage = UsageStatistics()

    def learn(self, prediction_input: PredictionInput, tool: str, weight: float = 1.0) -> None:
        self._usage.learn(IndexedInput(prediction_input), tool, weight)

    def predict(self, prediction_input: PredictionInput, *, explain: bool = False) -> Prediction:
        return guess(self._parts(IndexedInput(prediction_input)), self._usage.sessions.confidence, explain=explain)

    @abstractmethod
    def _parts(self, indexed: IndexedInput) -> dict[str, Scores]: ...


class FrequencyPredictor(_UsagePredictor):
    """Tools that many sessions use come first: decayed, per project, principal and client, backed off to all."""

    def _parts(self, indexed: IndexedInput) -> dict[str, Scores]:
        sessions = self._usage.sessions
        return {"use": log_odds(sessions.share(indexed)), "moment": _MOMENT_WEIGHT * sessions.moment(indexed)}


class CooccurrencePredictor(FrequencyPredictor):
    """Tools that share sessions with those in use, weighted by distance; with none in use, what is used often."""

    def _parts(self, indexed: IndexedInput) -> dict[str, Scores]:
        parts = super()._parts(indexed)
        if indexed.calls:
            company = self._usage.cooccurrence.share(indexed, self._usage.sessions.share(indexed))
            parts["company"] = log_odds(company) - parts["use"]
        return parts


class SequencePredictor(_UsagePredictor):
    """What followed the last two tools, the last one, or began sessions; repeats apart."""

    def _parts(self, indexed: IndexedInput) -> dict[str, Scores]:
        repeated, fresh = (self._usage.chains.share(indexed, fresh=fresh) for fresh in (False, True))
        odds = np.where(indexed.used, 1.0, -1.0) * self._usage.chains.fresh_odds(indexed)
        follows = log_odds(np.where(indexed.used, repeated, fresh)) + FURTHER_CALLS
        return {"follows": follows, "fresh": -np.log1p(np.exp(odds))}


class ServerPredictor(_UsagePredictor):
    """Tools of the servers in use, recently used ones first; with none in use, of those that most sessions use."""

    def _parts(self, indexed: IndexedInput) -> dict[str, Scores]:
        if not indexed.calls:
            return {"server": log_odds(self._usage.sessions.of_servers(indexed))}
        within = np.minimum(_TOOLS_OF_SERVER / indexed.server_sizes, 0.5)
        return {"near_server": log_odds(nearness(indexed) * within)}
