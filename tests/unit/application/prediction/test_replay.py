"""Replay: what a predictor that starts is taught again."""

from riglm.application.prediction.scope_models import training_examples
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.session import uuid7
from riglm.ports.analytics import TrainingCall, TrainingSession

TOOLS = tuple(f"{server}__tool{number}" for server in ("files", "mail", "web") for number in range(6))
SERVERS = {tool: tool.partition("__")[0] for tool in TOOLS}


def recorded(principal, *tools, found=DiscoveryMethod.LISTED, failed=(), available=(), start=0.0):
    calls = tuple(
        TrainingCall(tool, SERVERS.get(tool, "server"), found, place not in failed, start + place)
        for place, tool in enumerate(tools)
    )
    return TrainingSession(
        id=uuid7(),
        started_at=start,
        client="tester",
        client_id="",
        principal=principal,
        tools_available=available,
        calls=calls,
    )


def no_owner(_):
    return ""


def examples(history, owner=no_owner):
    return list(training_examples(history, owner))


def test_calls_are_taught_session_by_session_with_what_went_before():
    history = [recorded("ann", "a", "b"), recorded("bob", "a", found=DiscoveryMethod.SEARCHED)]
    found = [(known.principal, known.calls, tool, weight) for known, tool, weight in examples(history)]
    assert found == [("ann", (), "a", 1.0), ("ann", ("a",), "b", 1.0), ("bob", (), "a", 1.5)]


def test_failed_calls_are_neither_taught_nor_counted():
    history = [recorded("ann", "a", "b", "c", failed={1})]
    assert [(known.calls, tool) for known, tool, _ in examples(history)] == [((), "a"), (("a",), "c")]


def test_a_call_is_learned_among_the_tools_that_its_session_had():
    history = [recorded("ann", TOOLS[0], available=TOOLS), recorded("ann", TOOLS[1])]
    first, second = [known for known, *_ in examples(history)]
    assert first.candidates == TOOLS
    assert second.candidates == (TOOLS[0], TOOLS[1])


def test_the_server_of_a_tool_that_was_not_called_is_asked_for_or_read_from_its_name():
    history = [recorded("ann", "files__tool0", available=("files__tool0", "files__tool1", "bare", "known"))]
    [(known, *_)] = examples(history, {"known": "mail"}.get)
    assert {tool: known.servers[tool] for tool in known.candidates} == {
        "files__tool0": "files",
        "files__tool1": "files",
        "bare": "",
        "known": "mail",
    }


def test_the_catalogs_of_older_sessions_are_left_out_where_they_are_too_large_to_learn(monkeypatch):
    monkeypatch.setattr("riglm.application.prediction.scope_models.MAX_CANDIDATES", 4 * len(TOOLS))
    history = [recorded("ann", "a", "b", available=TOOLS) for _ in range(3)]
    assert [len(known.candidates) for known, *_ in examples(history)] == [2, 2, *[len(TOOLS)] * 4]


def test_of_a_session_with_too_many_calls_the_last_are_learned(monkeypatch):
    monkeypatch.setattr("riglm.application.prediction.scope_models.MAX_LEARNED_CALLS", 2)
    assert [tool for _, tool, _ in examples([recorded("ann", "a", "b", "c")])] == ["b", "c"]
