"""A predictor of somebody else's cannot harm the list."""

import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

from riglm.application.prediction.prediction_settings import IsolatedPredictor, make_strategy
from riglm.domain.prediction import Prediction, PredictionInput
from riglm.domain.schemas.section import PredictorSettings
from riglm.ports.predictor import PREDICTORS, PredictorPort
from tests.waiting import WAIT_SECONDS

SITUATION = PredictionInput(candidates=("a", "b"))


class Scripted(PredictorPort):
    def __init__(self, answer):
        self.answer = answer
        self.learned = []

    def learn(self, prediction_input, tool, weight=1.0):
        self.learned.append((tool, weight))
        if isinstance(self.answer, Exception):
            raise self.answer

    def predict(self, prediction_input, *, explain=False):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer() if callable(self.answer) else self.answer


def scores(*numbers):
    return Prediction(scores=np.array(numbers, float))


@pytest.fixture
def instead():
    return Scripted(scores(0.1, 0.2))


@pytest.fixture
def guard(instead):
    def guard(answer, timeout_seconds=5.0, **options):
        guarded = answer if isinstance(answer, Scripted) else Scripted(answer)
        return IsolatedPredictor(guarded, instead, fallback="scripted", timeout_seconds=timeout_seconds, **options)

    return guard


@pytest.mark.parametrize(
    "answer",
    [
        scores(float("nan"), 1),
        scores(1, 2, 3),
        Prediction(scores=np.array(["a", "b"])),
        Prediction(scores=np.zeros(2), log_odds={"part": np.array([0.0, -np.inf])}),
        Prediction(scores=np.zeros(2), log_odds={"part": np.zeros(2), "another": np.zeros(3)}),
        Prediction(scores=np.zeros(2), contributions={"part": np.zeros(3)}),
        "nonsense",
        ValueError("broken"),
    ],
    ids=repr,
)
def test_any_other_answer_is_replaced_and_said_once(guard, answer, caplog):
    predictor = guard(answer)
    for _ in range(3):
        found = predictor.predict(SITUATION)
        assert (found.scores.tolist(), found.fallback) == ([0.1, 0.2], "scripted")
    assert len(caplog.records) == 1
    assert "Scripted" in caplog.text


def test_one_that_is_late_is_not_asked_again_before_it_has_come_back(guard, caplog):
    go, asked = threading.Event(), []

    def slow():
        asked.append(1)
        go.wait(WAIT_SECONDS)
        return scores(5, 6)

    predictor = guard(slow, timeout_seconds=0.01)
    for _ in range(3):
        found = predictor.predict(SITUATION)
        assert (found.scores.tolist(), found.fallback) == ([0.1, 0.2], "scripted")
    late = predictor._late
    go.set()
    late.result(5)
    assert len(asked) == 1
    predictor._timeout_seconds = 5.0
    assert predictor.predict(SITUATION).scores.tolist() == [5, 6]
    assert "did not answer within 10 ms" in caplog.text


def test_one_that_hangs_while_it_learns_is_waited_for_once_and_the_fallback_answers(guard, instead, caplog):
    go = threading.Event()

    class Hanging(Scripted):
        def learn(self, prediction_input, tool, weight=1.0):
            self.learned.append(tool)
            go.wait(WAIT_SECONDS)

    hanging = Hanging(scores(5, 6))
    predictor = guard(hanging, learning_seconds=0.02)
    for _ in range(3):
        predictor.learn(SITUATION, "a")
        assert predictor.predict(SITUATION).fallback == "scripted"
    go.set()
    assert hanging.learned == ["a"]
    assert len(instead.learned) == 3
    assert [record.getMessage().count("within its time, while learning") for record in caplog.records] == [1]


def test_the_thread_of_a_predictor_that_nobody_has_any_more_ends(instead):
    guarded = IsolatedPredictor(Scripted(scores(0.3, 0.4)), instead, fallback="scripted", timeout_seconds=5.0)
    guarded.learn(SITUATION, "a")
    guarded.predict(SITUATION)
    thread, gone = guarded._worker._thread, weakref.ref(guarded)
    del guarded
    thread.join(WAIT_SECONDS)
    assert gone() is None
    assert not thread.is_alive()


# --- a strategy makes a predictor whenever sessions are learned, and a fallback where a plug-in cannot be made ---


def test_a_fallback_answers_for_a_plug_in_that_cannot_be_made_and_is_named_once(monkeypatch, caplog):
    def make(kind, options=None):
        if kind != "strange":
            return PREDICTORS.make(kind, options)
        raise OSError("the device is busy")

    monkeypatch.setattr("riglm.application.prediction.prediction_settings.PREDICTORS", SimpleNamespace(make=make))
    strategy = make_strategy(PredictorSettings.model_construct(kind="strange", options={}))
    asked = PredictionInput(candidates=("read", "write"))
    for _ in range(2):
        predictor = strategy.make()
        predictor.learn(asked, "read")
        assert predictor.predict(asked).fallback == "hybrid"
    assert len({record.getMessage() for record in caplog.records}) == len(caplog.records) > 0
