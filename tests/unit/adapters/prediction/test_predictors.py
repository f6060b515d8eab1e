"""Predictors, and the arrays that they share."""

import numpy as np
import pytest

from riglm.adapters.prediction.embedding import EmbeddingPredictor
from riglm.adapters.prediction.hybrid import HybridPredictor
from riglm.adapters.prediction.usage_statistics import CooccurrencePredictor, FrequencyPredictor, SequencePredictor
from riglm.domain.errors import ConfigurationError
from riglm.domain.prediction import Relevance
from riglm.ports.predictor import PredictorPort
from riglm.testing.predictor import TOOLS, a_prediction_input, example, in_context


def best(predictor: PredictorPort, *calls: str, **known: object) -> str:
    return TOOLS[int(np.argmax(predictor.predict(a_prediction_input(*calls, **known)).scores))]


def expected_first(predictor: PredictorPort, count: int) -> set[str]:
    """Return the tools that come first at a session's start."""
    scores = predictor.predict(a_prediction_input()).scores
    return {TOOLS[place] for place in np.argsort(-scores)[:count]}


def learn_session(predictor: PredictorPort, *calls: str, times: int = 1, **known: object) -> None:
    for _ in range(times):
        for done, tool in enumerate(calls):
            predictor.learn(a_prediction_input(*calls[:done], **known), tool)


def test_the_tool_of_the_most_sessions_comes_first_by_frequency_however_often_one_called_another():
    predictor = FrequencyPredictor()
    learn_session(predictor, "git__log", times=2)
    learn_session(predictor, *["web__fetch"] * 9)
    assert best(predictor) == "git__log"


def test_the_habits_of_a_principal_count_before_those_of_all():
    predictor = FrequencyPredictor()
    learn_session(predictor, "git__log", times=30, principal="ann")
    learn_session(predictor, "web__fetch", times=10, principal="ben")
    assert best(predictor, principal="ben") == "web__fetch"
    assert best(predictor, principal="cid") == "git__log"


def test_a_sequence_is_known_by_its_last_two_tools():
    predictor = SequencePredictor()
    learn_session(predictor, "git__log", "files__read", "git__diff", times=5)
    learn_session(predictor, "web__search", "files__read", "files__write", times=5)
    assert best(predictor, "git__log", "files__read") == "git__diff"
    assert best(predictor, "web__search", "files__read") == "files__write"


def test_company_counts_wherever_in_the_session_it_was_kept():
    predictor = CooccurrencePredictor()
    learn_session(predictor, "git__log", "files__read", "git__commit", times=5)
    learn_session(predictor, "web__search", "web__fetch", times=20)
    scores = dict(zip(TOOLS, predictor.predict(a_prediction_input("git__commit")).scores, strict=True))
    assert min(scores["git__log"], scores["files__read"]) > scores["web__search"]


def test_the_context_alone_ranks_for_embedding():
    prediction_input = in_context("git__log")
    assert prediction_input.relevance is not None
    scores, combined = EmbeddingPredictor().predict(prediction_input).scores, prediction_input.relevance.combined
    assert (1 / (1 + np.exp(-scores))).tolist() == pytest.approx(combined.tolist(), abs=0.001)
    assert not EmbeddingPredictor().predict(a_prediction_input("git__log")).scores.any()


def test_the_hybrid_is_right_about_context_before_it_has_learned_anything():
    described = np.zeros(len(TOOLS))
    described[TOOLS.index("web__fetch")] = 1.0
    relevance = Relevance(described=described, learned=np.zeros(len(TOOLS)), combined=described)
    assert best(HybridPredictor(), relevance=relevance) == "web__fetch"


def test_a_repeated_workflow_is_known_after_a_few_sessions_and_not_to_a_control():
    workflow = ("git__log", "web__search", "files__write", "git__commit")
    predictor, control = HybridPredictor(), HybridPredictor()
    learn_session(predictor, *workflow, times=5)
    assert expected_first(predictor, 4) == set(workflow)
    assert expected_first(control, 4) != set(workflow)
    assert all(best(predictor, *workflow[:done]) == workflow[done] for done in range(1, 4))
    assert not all(best(control, *workflow[:done]) == workflow[done] for done in range(1, 4))


def test_the_names_of_tools_say_which_unseen_tool_follows():
    tools = tuple(f"{verb}_{noun}" for noun in ("user", "page", "issue", "file") for verb in ("search", "get", "purge"))
    predictor = HybridPredictor()
    for noun in ("user", "page", "issue"):
        for _ in range(5):
            predictor.learn(a_prediction_input(f"search_{noun}", candidates=tools), f"get_{noun}")
    scores = dict(
        zip(tools, predictor.predict(a_prediction_input("search_file", candidates=tools)).scores, strict=True)
    )
    assert scores["get_file"] > scores["purge_file"]


def test_an_unknown_family_is_an_error_that_names_the_known():
    with pytest.raises(ConfigurationError, match=r"without: no signals are called magic — fix: .*sequence"):
        HybridPredictor(without=("magic",))


def test_the_hybrid_expects_at_a_session_s_start_what_sessions_use_wherever_in_them():
    predictor = HybridPredictor()
    for number in range(60):
        learn_session(predictor, "git__log", *["git__diff"] * (number % 2), *["git__commit"] * (number % 4 == 0))
    shares = 1 / (1 + np.exp(-predictor.predict(a_prediction_input()).scores))
    expected = {"git__log": 1.0, "git__diff": 0.5, "git__commit": 0.25}
    assert shares.tolist() == pytest.approx([expected.get(tool, 0.0) for tool in TOOLS], abs=0.05)


@pytest.mark.parametrize("calls", [(), ("git__log",)])
def test_the_surer_a_context_the_higher_it_lifts_what_it_taught(calls: tuple[str, ...]):
    nothing, learned, margins = np.zeros(len(TOOLS)), np.zeros(len(TOOLS)), []
    taught, other = TOOLS.index("web__search"), TOOLS.index("web__fetch")
    learned[taught] = 0.9
    predictor = example(HybridPredictor())
    for confidence in (0.0, 0.3, 0.6, 1.0):
        relevance = Relevance(described=nothing, learned=learned, combined=nothing, confidence=confidence)
        scores = predictor.predict(a_prediction_input(*calls, relevance=relevance)).scores
        margins.append(scores[taught] - scores[other])
    assert margins == sorted(set(margins))
    unknown = Relevance(described=nothing, learned=nothing, combined=nothing)
    scores = predictor.predict(a_prediction_input(*calls, relevance=unknown)).scores
    assert margins[0] == pytest.approx(scores[taught] - scores[other])


def test_new_tools_come_before_used_ones_but_the_two_likeliest_and_log_odds_stay():
    used = ("git__log", "git__diff", "git__commit")
    plain, lifted = (
        example(HybridPredictor(fresh_bonus=bonus)).predict(a_prediction_input(*used)) for bonus in (0.0, 50.0)
    )
    lowered = [tool for tool, was, now in zip(TOOLS, plain.scores, lifted.scores, strict=True) if was != now]
    likeliest = sorted(used, key=lambda tool: -plain.scores[TOOLS.index(tool)])
    assert lowered == likeliest[2:]
    assert TOOLS[int(np.argmin(lifted.scores))] == lowered[0]
    assert {name: part.tolist() for name, part in lifted.log_odds.items()} == {
        name: part.tolist() for name, part in plain.log_odds.items()
    }


def test_the_probabilities_of_the_next_call_sum_to_one_over_new_and_used_tools():
    for calls in (("git__log",), TOOLS):
        likely = example(HybridPredictor(fresh_bonus=0.0)).predict(a_prediction_input(*calls)).scores
        assert np.exp(likely).sum() == pytest.approx(1.0)
