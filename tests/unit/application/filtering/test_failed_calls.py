"""Failed calls: the tool is in use, and nothing is learned from it."""

from riglm.domain.invocation import DiscoveryMethod
from tests.unit.application.scripted_prediction import Stage, a_catalogue, a_session


def test_a_failed_call_puts_a_tool_in_use_and_trains_nothing():
    stage, session = Stage(), a_session()
    stage.shown(session, a_catalogue("a", "b"))
    stage.filtering.called(session, "a", DiscoveryMethod.LISTED, success=False)
    stage.filtering.called(session, "b", DiscoveryMethod.LISTED, success=True)
    state = stage.filtering.state(session)
    assert stage.prediction.training_queue == [("b", DiscoveryMethod.LISTED, ())], (
        "nor is the next call learned as following it"
    )
    assert list(state.used_in_turn) == ["a", "b"]
    assert (state.calls, state.made) == (["b"], 1)
