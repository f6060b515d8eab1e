"""What a predictor that starts is taught once more."""

import pytest

from riglm.application.prediction.replay import latest, replaying
from riglm.domain.identifier import uuid7
from riglm.domain.invocation import Found
from riglm.ports.analytics import RecordedCall, RecordedSession


class Pupil:
    """Keeps what it is taught."""

    def __init__(self):
        self.lessons = []

    def learn(self, situation, tool, weight=1.0):
        self.lessons.append((situation.principal, situation.calls, tool, weight))


def recorded(principal, *tools, found=Found.LISTED):
    calls = tuple(RecordedCall(tool, "server", found, True, float(at)) for at, tool in enumerate(tools))
    return RecordedSession(
        id=uuid7(), started_at=0.0, client="", client_id="", principal=principal, tools_available=(), calls=calls
    )


HISTORY = [recorded("ann", "a", "b", "c"), recorded("bob", "d"), recorded("carl", "e", "f")]


@pytest.mark.parametrize(
    ("most", "kept"),
    [
        (9, [("a", "b", "c"), ("d",), ("e", "f")]),
        (4, [("c",), ("d",), ("e", "f")]),
        (3, [("d",), ("e", "f")]),
        (1, [("f",)]),
        (0, []),
    ],
)
def test_of_many_calls_the_latest_are_kept_in_their_order(most, kept):
    assert [tuple(call.tool for call in session.calls) for session in latest(HISTORY, most)] == kept


def test_calls_are_taught_session_by_session_with_what_went_before():
    pupil = Pupil()
    history = [recorded("ann", "a", "b"), recorded("bob", "a", found=Found.SEARCHED)]
    assert list(replaying(history, pupil)) == ["a", "b", "a"]
    assert pupil.lessons == [("ann", (), "a", 1.0), ("ann", ("a",), "b", 1.0), ("bob", (), "a", 1.5)]
