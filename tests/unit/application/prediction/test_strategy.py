"""A strategy makes a predictor whenever sessions are learned, and a fallback where a plug-in cannot be made."""

import threading

import pytest

from riglm.adapters.prediction import select_predictor
from riglm.application.prediction.prediction_settings import make_strategy
from riglm.domain.prediction import PredictionInput
from riglm.domain.schemas.section import PredictorSettings
from tests.waiting import WAIT_SECONDS


@pytest.mark.parametrize("is_hanging", [False, True], ids=["raises", "hangs"])
def test_a_fallback_answers_for_a_plug_in_that_cannot_be_made_and_is_named_once(monkeypatch, caplog, is_hanging):
    go = threading.Event()

    def select(kind, options):
        if kind != "strange":
            return select_predictor(kind, options)
        if is_hanging:
            assert go.wait(WAIT_SECONDS)
        raise OSError("the device is busy")

    monkeypatch.setattr("riglm.application.prediction.prediction_settings.MAKING_SECONDS", 0.05)
    strategy = make_strategy(PredictorSettings.model_construct(kind="strange", options={}), select=select)
    asked = PredictionInput(candidates=("read", "write"))
    for _ in range(2):
        predictor = strategy.make()
        predictor.learn(asked, "read")
        assert predictor.predict(asked).fallback == "hybrid"
    go.set()
    assert len({record.getMessage() for record in caplog.records}) == len(caplog.records) > 0
