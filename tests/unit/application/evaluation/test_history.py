"""What would have been shown in recorded sessions."""

from uuid import UUID

import pytest

from riglm.adapters.prediction.server import ServerPredictor
from riglm.application.evaluation.history import evaluate_history
from riglm.domain.invocation import Found
from riglm.ports.analytics import RecordedCall, RecordedSession
from tests.unit.application.evaluation.test_sequences import Witness

TOOLS = tuple(f"tool{number}" for number in range(40))


def a_session(number: int, *calls: str, available: tuple[str, ...] = TOOLS) -> RecordedSession:
    return RecordedSession(
        id=UUID(int=number),
        started_at=float(number),
        client="editor",
        client_id="c",
        principal="p",
        tools_available=available,
        calls=tuple(RecordedCall(tool, "files", Found.LISTED, True, float(number)) for tool in calls),
    )


def test_each_call_is_predicted_before_it_is_learned():
    witness = Witness()
    evaluate_history([a_session(1, "tool3", "tool4")], witness, goal=0.9, least=1, most=5)
    assert [(kind, tool, situation.calls) for kind, situation, tool in witness.seen] == [
        ("predict", "", ()),
        ("learn", "tool3", ()),
        ("predict", "", ("tool3",)),
        ("learn", "tool4", ("tool3",)),
    ]


def test_a_workflow_that_repeats_ends_up_in_short_lists():
    history = [a_session(number, "tool30", "tool31", "tool32") for number in range(60)]
    figures = evaluate_history(history, Witness(), goal=0.9, least=1, most=5)
    assert figures["calls"] == figures["new_calls"] == 180
    assert figures["in_list"] == pytest.approx(100 * 177 / 180, abs=0.01)
    assert figures["mean_list"] < 2
    assert figures["reduction"] > 95


def test_a_strategy_that_knows_nothing_of_the_calls_misses_them():
    history = [a_session(number, f"tool{39 - number % 20}") for number in range(40)]
    figures = evaluate_history(history, ServerPredictor(), goal=0.9, least=1, most=5)
    assert figures["in_list"] == 0


def test_a_tool_that_was_called_counts_as_available():
    history = [a_session(1, "elsewhere", available=())]
    figures = evaluate_history(history, Witness(), goal=0.9, least=1, most=5)
    assert figures["in_list"] == 100
    assert figures["reduction"] == 0


def test_no_history_has_no_shares():
    figures = evaluate_history([], Witness(), goal=0.9, least=1, most=5)
    assert figures["sessions"] == figures["calls"] == 0
    assert figures["in_list"] is figures["mean_list"] is None
