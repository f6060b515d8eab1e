"""Every predictor that is installed, held to the same contract."""

from importlib.metadata import entry_points

import pytest

from riglm.adapters.prediction import counts
from riglm.ports.predictor import PREDICTORS, PredictorPort
from riglm.testing.predictor import PredictorContract


@pytest.fixture(params=PREDICTORS.names())
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


class TestInstalledPredictors(PredictorContract):
    stream_length = 520

    @pytest.fixture
    def predictor(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> PredictorPort:
        monkeypatch.setattr(counts, "_MAX_ROWS", 320)
        return PREDICTORS.make(kind)


def test_each_strategy_of_the_handbook_is_installed():
    assert set(PREDICTORS.names()) >= {"frequency", "cooccurrence", "sequence", "embedding", "server", "hybrid"}


def test_each_entry_point_names_a_class_with_defaults_for_all_options():
    for point in entry_points(group=PREDICTORS.group):
        assert isinstance(PREDICTORS.make(point.name), point.load())
