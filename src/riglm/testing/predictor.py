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


def a_prediction_input(*calls: str, candidates: Sequence[str] = TOOLS, **known: Any) -> PredictionInput:
    """A situation after these calls; `known` overrides fields."""
    servers = {tool: tool.partition("__")[0] for tool in (*candidates, *calls)}
    fields: dict[str, Any] = {"candidates": tuple(candidates), "calls": calls, "servers": servers, "time": 1e9}
    return PredictionInput(**(fields | known))


def in_context(*calls: str, candidates: Sequence[str] = TOOLS) -> PredictionInput:
    """A situation of which everything is known."""
    size = len(candidates)
    described = np.linspace(0.0, 1.0, size)
    learned = np.zeros(size)
    learned[: size // 2] = 0.5
    relevance = Relevance(described=described, learned=learned, combined=(described + learned) / 2, confidence=0.4)
    context = Context(text="commit the change", vector=np.array([1.0, 0.0], np.float32), model="contract")
    known = {"context": context, "relevance": relevance, "principal": "someone", "client": "editor"}
    return a_prediction_input(*calls, candidates=candidates, **known)


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


def example(predictor: PredictorPort, sessions: int = 12) -> PredictorPort:
    """The predictor after it has learned the stream."""
    for prediction_input, tool in a_stream(sessions):
        predictor.learn(prediction_input, tool)
    return predictor


def assert_sound(prediction: Prediction, prediction_input: PredictionInput) -> None:
    """One finite score for each candidate, and a confidence between 0 and 1."""
    assert prediction.scores.shape == (len(prediction_input.candidates),)
    assert np.isfinite(prediction.scores).all()
    assert 0.0 <= prediction.confidence <= 1.0
    for part in (prediction.log_odds or {}).values():
        assert part.shape == prediction.scores.shape
        assert np.isfinite(part).all()


def _situations() -> tuple[PredictionInput, ...]:
    """Situations with and without calls and a context."""
    return a_prediction_input(), a_prediction_input("git__log"), in_context(), in_context("web__search")


def _frozen(prediction_input: PredictionInput) -> tuple[Any, ...]:
    relevance, context = prediction_input.relevance, prediction_input.context
    parts = (relevance.described, relevance.learned, relevance.combined) if relevance else ()
    vector = context.vector.tolist() if context is not None and context.vector is not None else None
    return (
        prediction_input.candidates,
        prediction_input.calls,
        dict(prediction_input.servers),
        [part.tolist() for part in parts],
        vector,
    )


class PredictorContract:
    """The contract of `PredictorPort`."""

    stream_length = 6_500
    """Calls of the stream over which memory stays bounded: more than the predictor remembers."""

    @pytest.fixture
    def predictor(self) -> PredictorPort:
        """A predictor that has learned nothing yet."""
        raise NotImplementedError

    def test_it_predicts_before_any_learning(self, predictor: PredictorPort) -> None:
        """A start without history is no special case."""
        for prediction_input in _situations():
            assert_sound(predictor.predict(prediction_input), prediction_input)

    def test_it_predicts_after_learning(self, predictor: PredictorPort) -> None:
        """With and without a context."""
        example(predictor)
        for prediction_input in _situations():
            assert_sound(predictor.predict(prediction_input), prediction_input)

    def test_predicting_changes_no_later_prediction(self, predictor: PredictorPort) -> None:
        """A twin that is never asked in between answers the same."""
        twin = example(deepcopy(predictor))
        example(predictor)
        for _ in range(5):
            predictor.predict(in_context("git__log"))
            predictor.predict(a_prediction_input("web__search", "never__seen"), explain=True)
        for prediction_input, tool in a_stream(3):
            assert predictor.predict(prediction_input).scores.tolist() == twin.predict(prediction_input).scores.tolist()
            predictor.learn(prediction_input, tool)
            twin.learn(prediction_input, tool)

    def test_scores_follow_the_order_of_the_candidates(self, predictor: PredictorPort) -> None:
        """The same tools in another order have the same scores."""
        example(predictor)
        there = predictor.predict(a_prediction_input("git__log", "git__diff"))
        back = predictor.predict(a_prediction_input("git__log", "git__diff", candidates=TOOLS[::-1]))
        assert there.scores == pytest.approx(back.scores[::-1])

    def test_no_candidates_have_no_scores(self, predictor: PredictorPort) -> None:
        """An empty catalogue is no error."""
        example(predictor)
        assert predictor.predict(a_prediction_input("git__log", candidates=())).scores.shape == (0,)

    def test_a_single_candidate_has_a_finite_score(self, predictor: PredictorPort) -> None:
        """Nor is a catalogue of one."""
        example(predictor)
        for prediction_input in (
            in_context("web__search", candidates=TOOLS[:1]),
            in_context("git__log", candidates=TOOLS[:1]),
        ):
            assert_sound(predictor.predict(prediction_input), prediction_input)

    def test_tools_never_seen_have_finite_scores(self, predictor: PredictorPort) -> None:
        """However odd their names are."""
        example(predictor)
        unseen = ("", "x" * 100_000, "née\x00\ud800", "42", "____")
        prediction_input = in_context("git__log", "", candidates=(*TOOLS, *unseen))
        assert_sound(predictor.predict(prediction_input), prediction_input)
        predictor.learn(prediction_input, unseen[1])
        assert_sound(predictor.predict(prediction_input), prediction_input)

    def test_a_call_of_what_was_no_candidate_is_learned_without_harm(self, predictor: PredictorPort) -> None:
        """A tool may have left the catalogue."""
        predictor.learn(a_prediction_input("git__log", candidates=()), "git__diff")
        predictor.learn(a_prediction_input("git__log"), "elsewhere")
        assert_sound(predictor.predict(a_prediction_input("elsewhere")), a_prediction_input("elsewhere"))

    def test_relevance_that_is_not_finite_does_not_spread(self, predictor: PredictorPort) -> None:
        """What a retriever got wrong spoils neither this prediction nor later ones."""
        example(predictor)
        broken = np.full(len(TOOLS), np.nan)
        broken[0] = np.inf
        relevance = Relevance(described=broken, learned=broken, combined=broken, confidence=0.5)
        prediction_input = a_prediction_input("git__log", relevance=relevance)
        assert_sound(predictor.predict(prediction_input), prediction_input)
        predictor.learn(prediction_input, "git__diff")
        assert_sound(predictor.predict(in_context("git__log")), in_context("git__log"))

    def test_what_is_passed_is_not_changed(self, predictor: PredictorPort) -> None:
        """Arrays and mappings are as they were."""
        prediction_input = in_context("git__log", "git__diff")
        before = _frozen(prediction_input)
        predictor.learn(prediction_input, "git__commit")
        predictor.predict(prediction_input, explain=True)
        assert _frozen(prediction_input) == before

    def test_what_is_passed_may_change_afterwards(self, predictor: PredictorPort) -> None:
        """Nothing of it is kept."""
        twin = deepcopy(predictor)
        servers = dict.fromkeys(TOOLS, "one")
        prediction_input = a_prediction_input("git__log", servers=servers)
        for one in (predictor, twin):
            one.learn(prediction_input, "git__diff")
        predictor.predict(prediction_input)
        servers.clear()
        asked = a_prediction_input("git__log")
        assert predictor.predict(asked).scores.tolist() == twin.predict(asked).scores.tolist()

    def test_scores_belong_to_whoever_asked(self, predictor: PredictorPort) -> None:
        """Writing into an answer does not change the next."""
        example(predictor)
        prediction_input = in_context("git__log")
        first = predictor.predict(prediction_input, explain=True)
        expected = first.scores.tolist()
        first.scores[:] = 7.0
        for part in first.contributions.values():
            if part.flags.writeable:
                part[:] = 7.0
        assert predictor.predict(prediction_input).scores.tolist() == expected

    def test_equal_streams_give_equal_predictions(self, predictor: PredictorPort) -> None:
        """There is no hidden chance."""
        twin = example(deepcopy(predictor))
        example(predictor)
        prediction_input = in_context("files__read")
        assert predictor.predict(prediction_input).scores.tolist() == twin.predict(prediction_input).scores.tolist()

    def test_what_was_learned_survives_pickling(self, predictor: PredictorPort) -> None:
        """So that it can be kept and moved."""
        example(predictor)
        restored = pickle.loads(pickle.dumps(predictor))  # noqa: S301 - it was written a moment ago
        for prediction_input, _ in a_stream(3):
            assert (
                restored.predict(prediction_input).scores.tolist()
                == predictor.predict(prediction_input).scores.tolist()
            )

    def test_contributions_add_up_to_the_scores(self, predictor: PredictorPort) -> None:
        """For any signals, before and after learning."""
        known = [in_context(*calls) for calls in ((), ("git__log",), TOOLS)]
        for sessions in (0, 12):
            example(predictor, sessions)
            for prediction_input in (*known, a_prediction_input(), a_prediction_input("web__search")):
                explained = predictor.predict(prediction_input, explain=True)
                if explained.contributions:
                    total = sum(explained.contributions.values(), np.zeros(len(prediction_input.candidates)))
                    assert total == pytest.approx(explained.scores)

    def test_explaining_changes_no_score(self, predictor: PredictorPort) -> None:
        """And without being asked, nothing is explained."""
        example(predictor)
        prediction_input = in_context("git__log")
        plain, explained = predictor.predict(prediction_input), predictor.predict(prediction_input, explain=True)
        assert plain.scores.tolist() == explained.scores.tolist()
        assert plain.contributions == {}

    def test_memory_stays_bounded_over_a_long_stream(self, predictor: PredictorPort) -> None:
        """The last third of a stream of ever new tools adds little to what the rest needed."""
        sizes = []
        for number in range(1, self.stream_length + 1):
            tools = tuple(f"server{number // 50}__tool{number + near}" for near in range(4))
            predictor.learn(a_prediction_input(*tools[:3], candidates=tools, principal=f"p{number}"), tools[3])
            if number in (self.stream_length * 9 // 13, self.stream_length):
                sizes.append(len(pickle.dumps(predictor)))
        assert sizes[1] < 1.2 * sizes[0]
