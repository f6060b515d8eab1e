import numpy as np

from riglm.domain.prediction import Context
from riglm.domain.retrieval.fit import suitability
from riglm.domain.retrieval.reliability import Reliability
from riglm.domain.retrieval.standard import relative, standardised
from riglm.domain.retrieval.static_index import WORDS_WITHOUT_MEANING, StaticIndex
from riglm.domain.tool import ToolProfile
from tests.unit.domain.retrieval.samples import MODEL

AXES = np.eye(8, dtype=np.float32)


def _tool(name, server=""):
    return ToolProfile(name=name, server=server)


def _asked(direction, model=MODEL):
    return Context(text="something", vector=direction / np.linalg.norm(direction), model=model)


def test_of_two_tools_equally_near_the_one_from_the_server_that_fits_comes_first():
    tools = [_tool("a", "mail"), _tool("b", "mail"), _tool("c", "maps"), _tool("d", "maps")]
    vectors = {"a": AXES[0], "b": AXES[1], "c": AXES[2], "d": AXES[0]}
    scores = StaticIndex(tools).with_vectors(MODEL, vectors).evidence(_asked(AXES[0] + AXES[1] * 0.9))
    assert scores[0] > scores[3] > scores[2]


def test_words_count_more_when_the_model_knows_no_meaning():
    tools = [ToolProfile(name="near", description=""), ToolProfile(name="something", description="")]
    vectors = {"near": AXES[0], "something": AXES[1]}
    real = StaticIndex(tools).with_vectors(MODEL, vectors)
    hashed = StaticIndex(tools).with_vectors(WORDS_WITHOUT_MEANING + "x", vectors)
    assert real.evidence(_asked(AXES[0])).argmax() == 0
    assert hashed.evidence(_asked(AXES[0], WORDS_WITHOUT_MEANING + "x")).argmax() == 1


def test_the_more_tools_there_are_the_nearer_the_best_one_must_be():
    assert suitability(0.3, 0.1, 50) >= 0
    assert suitability(0.3, 0.1, 10_000) < 0


def test_without_meaning_a_request_fits_when_words_are_shared():
    assert suitability(None, 0.5, 10_000) >= 0
    assert suitability(None, 0.0, 10) < 0


def test_equal_scores_tell_nothing():
    assert not standardised(np.full((2, 3), 7.0)).any()
    assert not relative(np.zeros(3)).any()
    assert standardised(np.zeros((1, 0))).shape == (1, 0)


def test_what_was_right_one_time_in_four_is_hardly_trusted_and_old_failures_are_forgotten():
    record = Reliability()
    for number in range(400):
        record.note(number % 4 == 0)
    assert record.trust < 0.07
    for _ in range(1000):
        record.note(True)
    assert record.trust > 0.9


def test_one_success_is_no_proof():
    record = Reliability()
    assert record.trust == 0
    record.note(True)
    assert record.trust < 0.05
