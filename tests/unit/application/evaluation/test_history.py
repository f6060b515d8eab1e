"""What would have been shown in recorded sessions."""

from uuid import UUID

import pytest

from riglm.adapters.prediction.usage_statistics import ServerPredictor
from riglm.application.evaluation.history import figures, walk_history
from riglm.domain.invocation import DiscoveryMethod
from riglm.ports.analytics import TrainingCall, TrainingSession
from tests.unit.application.evaluation.test_sequences import Witness

TOOLS = tuple(f"tool{number}" for number in range(40))


def a_session(number: int, *calls: str, available: tuple[str, ...] = TOOLS) -> TrainingSession:
    return TrainingSession(
        id=UUID(int=number),
        started_at=float(number),
        client="editor",
        client_id="c",
        principal="p",
        tools_available=available,
        calls=tuple(TrainingCall(tool, "files", DiscoveryMethod.LISTED, True, float(number)) for tool in calls),
    )


def judged(history, predictor, most=5):
    return figures(walk_history(history, predictor, goal=0.9, least=1, most=most))


def test_each_call_is_predicted_before_it_is_learned():
    witness = Witness()
    judged([a_session(1, "tool3", "tool4")], witness)
    assert [(kind, tool, prediction_input.calls) for kind, prediction_input, tool in witness.seen] == [
        ("predict", "", ()),
        ("learn", "tool3", ()),
        ("predict", "", ("tool3",)),
        ("learn", "tool4", ("tool3",)),
    ]


def test_a_workflow_that_repeats_ends_up_in_short_lists():
    history = [a_session(number, "tool30", "tool31", "tool32") for number in range(60)]
    found = judged(history, Witness())
    assert found["calls"] == found["new_calls"] == 180
    assert found["hit_rate"] == pytest.approx(100 * 177 / 180, abs=0.01)
    assert found["mean_list"] < 2
    assert found["reduction"] > 95


def test_a_strategy_that_knows_nothing_of_the_calls_misses_them():
    history = [a_session(number, f"tool{39 - number % 20}") for number in range(40)]
    assert judged(history, ServerPredictor())["hit_rate"] == 0


def test_a_tool_that_was_called_counts_as_available():
    found = judged([a_session(1, "elsewhere", available=("here",))], Witness())
    assert found["hit_rate"] == 100
    assert found["reduction"] == 0


def test_a_session_of_which_no_list_is_known_is_learned_from_and_not_judged():
    witness = Witness()
    history = [a_session(1, "tool3", "tool4", available=()), a_session(2, "tool3")]
    found = judged(history, witness)
    assert (found["sessions"], found["calls"]) == (1, 1)
    assert [kind for kind, _, _ in witness.seen] == ["learn", "learn", "predict", "learn"]


def test_what_was_before_the_time_that_is_judged_is_learned_from():
    history = [a_session(number, "tool30", "tool31", "tool32") for number in range(60)]
    whole = walk_history(history, Witness(), goal=0.9, least=1, most=5)
    latest = walk_history(history, Witness(), goal=0.9, least=1, most=5, since=40.0)
    judged_twice = [(step.session, step.tool, step.place, step.size) for step in whole if step.at >= 40.0]
    assert [(step.session, step.tool, step.place, step.size) for step in latest] == judged_twice
    assert len(latest) == 60


def test_no_history_has_no_shares():
    found = judged([], Witness())
    assert found["sessions"] == found["calls"] == 0
    assert found["hit_rate"] is found["mean_list"] is None
