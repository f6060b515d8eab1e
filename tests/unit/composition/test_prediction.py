"""A strategy makes a predictor whenever sessions are learned, and a fallback where a plug-in cannot be made."""

import threading

import pytest

from riglm.composition import prediction
from riglm.domain.prediction import PredictionInput
from riglm.domain.schemas.settings import Settings
from tests.waiting import WAIT_SECONDS

SETTINGS = Settings.model_validate({"upstream": {"url": "http://127.0.0.1:9/mcp"}, "predictor": {"kind": "strange"}})


@pytest.mark.parametrize("is_hanging", [False, True], ids=["raises", "hangs"])
def test_a_fallback_answers_for_a_plug_in_that_cannot_be_made_and_is_named_once(monkeypatch, caplog, is_hanging):
    go = threading.Event()

    def build(*_):
        if is_hanging:
            assert go.wait(WAIT_SECONDS)
        raise OSError("the device is busy")

    monkeypatch.setattr(prediction, "build_predictor", build)
    monkeypatch.setattr(prediction, "_MAKING_SECONDS", 0.05)
    strategy = prediction.build_strategy(SETTINGS)
    asked = PredictionInput(candidates=("read", "write"))
    for _ in range(2):
        predictor = strategy.make()
        predictor.learn(asked, "read")
        assert predictor.predict(asked).fallback == "hybrid"
    go.set()
    assert len({record.getMessage() for record in caplog.records}) == len(caplog.records) > 0
