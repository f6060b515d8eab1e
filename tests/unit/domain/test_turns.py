"""Where a turn of a session begins, and what was used lately."""

import pytest

from riglm.domain.session_state import MAX_CALLS, MAX_QUERIES, MAX_USED, SessionState, begin_turn, begins_turn, turn_key

KEYS = ("vscode.requestId", "traceparent")


@pytest.mark.parametrize(
    ("meta", "key"),
    [
        (b"", ""),
        (b"{}", ""),
        (b"[1]", ""),
        (b'{"vscode.requestId":"r1"}', "vscode.requestId=r1"),
        (b'{"vscode.requestId":7}', ""),
        (b'{"traceparent":"00-abc-01-01","vscode.requestId":"r1"}', "vscode.requestId=r1"),
        (b'{"traceparent":"00-abc-01-01"}', "traceparent=abc"),
        (b'{"traceparent":"odd"}', "traceparent=odd"),
    ],
)
def test_a_turn_is_named_by_the_first_key_that_is_there(meta, key):
    assert turn_key(meta, KEYS) == key


def test_a_new_key_begins_a_turn_and_the_first_one_does_not():
    assert not begins_turn(SessionState(), "k1", 10.0, 120.0)
    assert begins_turn(SessionState(turn_key="k1"), "k2", 10.0, 120.0)
    assert not begins_turn(SessionState(turn_key="k1"), "k1", 10.0, 120.0)


def test_a_tool_counts_as_used_lately_for_three_turns():
    state = SessionState()
    state.called("a", 1.0)
    kept = []
    for _ in range(4):
        kept.append("a" in state.used_lately(3))
        begin_turn(state)
    assert kept == [True, True, True, False]


def test_a_state_stays_bounded_over_a_long_session():
    state = SessionState()
    for number in range(MAX_USED + 500):
        state.called(f"tool{number}", float(number))
    assert (len(state.calls), len(state.used_in_turn)) == (MAX_CALLS, MAX_USED)
    assert f"tool{MAX_USED + 499}" in state.used_in_turn


def test_the_queries_of_a_session_stay_bounded():
    state = SessionState()
    for number in range(MAX_QUERIES + 50):
        state.found(f"query {number}", [f"tool{number}"])
    assert len(state.queries) == MAX_QUERIES
    assert f"tool{MAX_QUERIES + 49}" in state.queries


def test_only_a_list_that_differs_counts_as_a_change():
    state = SessionState()
    for names in (("a",), ("a",), ("a", "b"), ("a", "b"), ("a",)):
        state.listed(names)
    assert state.changes == 2
