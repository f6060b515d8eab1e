"""What every predictor must do: subclass `PredictorContract` and give it a fresh predictor."""

import pickle
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from riglm.domain.prediction import Context, Prediction, PredictionInput, Relevance
from riglm.ports.predictor import PredictorPort

TOOLS = ("git__log", "git__diff", "git__commit", "files__read", "files__write", "web__search", "web__fetch")
"""The catalogue of the contract's situations, of three servers."""


def a_situation(*calls: str, candidates: Sequence[str] = TOOLS, **known: Any) -> PredictionInput:
    """A situation after these calls; `known` overrides fields."""
    servers = {tool: tool.partition("__")[0] for tool in (*candidates, *calls)}
    fields: dict[str, Any] = {"candidates": tuple(candidates), "calls": calls, "servers": servers, "time": 1e9}
    return PredictionInput(**(fields | known))


def in_context(*calls: str, candidates: Sequence[str] = TOOLS, lasting: bool = False) -> PredictionInput:
    """A situation of which everything is known."""
    size = len(candidates)
    described = np.linspace(0.0, 1.0, size)
    learned = np.zeros(size)
    learned[: size // 2] = 0.5
    relevance = Relevance(described=described, learned=learned, combined=(described + learned) / 2, confidence=0.4)
    context = Context(text="commit the change", vector=np.array([1.0, 0.0], np.float32), model="contract")
    known = {"context": context, "relevance": relevance, "principal": "someone", "client": "editor"}
    return a_situation(*calls, candidates=candidates, lasting=lasting, **known)


def a_stream(sessions: int = 12) -> Iterator[tuple[PredictionInput, str]]:
    """Calls with the situations they were made in, always the same."""
    workflows = (
        ("git__log", "git__diff", "files__read", "files__write", "git__commit"),
        ("web__search", "web__fetch", "web__fetch", "files__write"),
        ("files__read", "files__read", "git__diff", "files__write", "git__commit"),
    )
    for number in range(sessions):
        calls = workflows[number % len(workflows)]
        for done, tool in enumerate(calls):
            yield in_context(*calls[:done]), tool


def taught(predictor: PredictorPort, sessions: int = 12) -> PredictorPort:
    """The predictor after it has learned the stream."""
    for situation, tool in a_stream(sessions):
        predictor.learn(situation, tool)
    return predictor


def assert_sound(prediction: Prediction, situation: PredictionInput) -> None:
    """One finite score for each candidate, and a confidence between 0 and 1."""
    assert prediction.scores.shape == (len(situation.candidates),)
    assert np.isfinite(prediction.scores).all()
    assert 0.0 <= prediction.confidence <= 1.0
    if prediction.log_probabilities is not None:
        assert prediction.log_probabilities.shape == prediction.scores.shape
        assert np.exp(prediction.log_probabilities).sum() == pytest.approx(1.0, abs=0.01)


def _frozen(situation: PredictionInput) -> tuple[Any, ...]:
    relevance, context = situation.relevance, situation.context
    parts = (relevance.described, relevance.learned, relevance.combined) if relevance else ()
    vector = context.vector.tolist() if context is not None and context.vector is not None else None
    return situation.candidates, situation.calls, dict(situation.servers), [part.tolist() for part in parts], vector


class PredictorContract:
    """The contract of `PredictorPort`."""

    @pytest.fixture
    def predictor(self) -> PredictorPort:
        """A predictor that has learned nothing yet."""
        raise NotImplementedError

    def test_it_predicts_before_any_learning(self, predictor: PredictorPort) -> None:
        """A start without history is no special case."""
        for situation in (a_situation(), a_situation("git__log"), in_context(), in_context("web__search")):
            assert_sound(predictor.predict(situation), situation)

    def test_it_predicts_after_learning(self, predictor: PredictorPort) -> None:
        """With and without a context."""
        taught(predictor)
        for situation in (a_situation(), a_situation("git__log"), in_context(), in_context("web__search")):
            assert_sound(predictor.predict(situation), situation)

    def test_predicting_changes_no_later_prediction(self, predictor: PredictorPort) -> None:
        """A twin that is never asked in between answers the same."""
        twin = taught(deepcopy(predictor))
        taught(predictor)
        for _ in range(5):
            predictor.predict(in_context("git__log"))
            predictor.predict(a_situation("web__search", "never__seen"), explain=True)
        for situation, tool in a_stream(3):
            assert predictor.predict(situation).scores.tolist() == twin.predict(situation).scores.tolist()
            predictor.learn(situation, tool)
            twin.learn(situation, tool)

    def test_scores_follow_the_order_of_the_candidates(self, predictor: PredictorPort) -> None:
        """The same tools in another order have the same scores."""
        taught(predictor)
        there = predictor.predict(a_situation("git__log", "git__diff"))
        back = predictor.predict(a_situation("git__log", "git__diff", candidates=TOOLS[::-1]))
        assert there.scores == pytest.approx(back.scores[::-1])

    def test_no_candidates_have_no_scores(self, predictor: PredictorPort) -> None:
        """An empty catalogue is no error."""
        taught(predictor)
        assert predictor.predict(a_situation("git__log", candidates=())).scores.shape == (0,)

    def test_a_single_candidate_has_a_finite_score(self, predictor: PredictorPort) -> None:
        """Nor is a catalogue of one."""
        taught(predictor)
        for situation in (
            in_context("web__search", candidates=TOOLS[:1]),
            in_context("git__log", candidates=TOOLS[:1]),
        ):
            assert_sound(predictor.predict(situation), situation)

    def test_tools_never_seen_have_finite_scores(self, predictor: PredictorPort) -> None:
        """However odd their names are."""
        taught(predictor)
        unseen = ("", "x" * 100_000, "née\x00\ud800", "42", "____")
        situation = in_context("git__log", "", candidates=(*TOOLS, *unseen))
        assert_sound(predictor.predict(situation), situation)
        predictor.learn(situation, unseen[1])
        assert_sound(predictor.predict(situation), situation)

    def test_a_call_of_what_was_no_candidate_is_learned_without_harm(self, predictor: PredictorPort) -> None:
        """A tool may have left the catalogue."""
        predictor.learn(a_situation("git__log", candidates=()), "git__diff")
        predictor.learn(a_situation("git__log"), "elsewhere")
        assert_sound(predictor.predict(a_situation("elsewhere")), a_situation("elsewhere"))

    def test_relevance_that_is_not_finite_does_not_spread(self, predictor: PredictorPort) -> None:
        """What a retriever got wrong spoils neither this prediction nor later ones."""
        taught(predictor)
        broken = np.full(len(TOOLS), np.nan)
        broken[0] = np.inf
        relevance = Relevance(described=broken, learned=broken, combined=broken, confidence=0.5)
        situation = a_situation("git__log", relevance=relevance)
        assert_sound(predictor.predict(situation), situation)
        predictor.learn(situation, "git__diff")
        assert_sound(predictor.predict(in_context("git__log")), in_context("git__log"))

    def test_what_is_passed_is_not_changed(self, predictor: PredictorPort) -> None:
        """Arrays and mappings are as they were."""
        situation = in_context("git__log", "git__diff")
        before = _frozen(situation)
        predictor.learn(situation, "git__commit")
        predictor.predict(situation, explain=True)
        assert _frozen(situation) == before

    def test_what_is_passed_may_change_afterwards(self, predictor: PredictorPort) -> None:
        """Nothing of it is kept."""
        twin = deepcopy(predictor)
        servers = dict.fromkeys(TOOLS, "one")
        situation = a_situation("git__log", servers=servers)
        for one in (predictor, twin):
            one.learn(situation, "git__diff")
        predictor.predict(situation)
        servers.clear()
        asked = a_situation("git__log")
        assert predictor.predict(asked).scores.tolist() == twin.predict(asked).scores.tolist()

    def test_scores_belong_to_whoever_asked(self, predictor: PredictorPort) -> None:
        """Writing into an answer does not change the next."""
        taught(predictor)
        situation = in_context("git__log")
        first = predictor.predict(situation, explain=True)
        expected = first.scores.tolist()
        first.scores[:] = 7.0
        for part in first.contributions.values():
            if part.flags.writeable:
                part[:] = 7.0
        assert predictor.predict(situation).scores.tolist() == expected

    def test_equal_streams_give_equal_predictions(self, predictor: PredictorPort) -> None:
        """There is no hidden chance."""
        twin = taught(deepcopy(predictor))
        taught(predictor)
        situation = in_context("files__read")
        assert predictor.predict(situation).scores.tolist() == twin.predict(situation).scores.tolist()

    def test_what_was_learned_survives_pickling(self, predictor: PredictorPort) -> None:
        """So that it can be kept and moved."""
        taught(predictor)
        restored = pickle.loads(pickle.dumps(predictor))  # noqa: S301 - it was written a moment ago
        for situation, _ in a_stream(3):
            assert restored.predict(situation).scores.tolist() == predictor.predict(situation).scores.tolist()

    def test_contributions_add_up_to_the_scores(self, predictor: PredictorPort) -> None:
        """Whatever the signals are, before and after any learning, for the next call and for all that come."""
        known = [
            in_context(*calls, lasting=lasting) for calls in ((), ("git__log",), TOOLS) for lasting in (False, True)
        ]
        for sessions in (0, 12):
            taught(predictor, sessions)
            for situation in (*known, a_situation(), a_situation("web__search")):
                explained = predictor.predict(situation, explain=True)
                if explained.contributions:
                    total = sum(explained.contributions.values(), np.zeros(len(situation.candidates)))
                    assert total == pytest.approx(explained.scores)

    def test_explaining_changes_no_score(self, predictor: PredictorPort) -> None:
        """And without being asked, nothing is explained."""
        taught(predictor)
        situation = in_context("git__log")
        plain, explained = predictor.predict(situation), predictor.predict(situation, explain=True)
        assert plain.scores.tolist() == explained.scores.tolist()
        assert plain.contributions == {}

    def test_memory_stays_bounded_over_a_long_stream(self, predictor: PredictorPort) -> None:
        """The second half of a stream of ever new tools adds little to what the first half needed."""
        sizes = []
        for number in range(9_000):
            tools = tuple(f"server{number // 50}__tool{number + near}" for near in range(4))
            predictor.learn(a_situation(*tools[:3], candidates=tools, principal=f"p{number}"), tools[3])
            if number in (4_499, 8_999):
                sizes.append(len(pickle.dumps(predictor)))
        assert sizes[1] < 1.2 * sizes[0]
