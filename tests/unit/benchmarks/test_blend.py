"""The baseline of next-tool evaluations is a predictor like others."""

import pytest
from benchmarks.prediction.blend import BlendPredictor

from riglm.ports.predictor import PredictorPort
from riglm.testing.predictor import PredictorContract


class TestBlend(PredictorContract):
    @pytest.fixture
    def predictor(self) -> PredictorPort:
        return BlendPredictor()

    def test_memory_stays_bounded_over_a_long_stream(self, predictor: PredictorPort) -> None:
        """It is for evaluations, which end."""
