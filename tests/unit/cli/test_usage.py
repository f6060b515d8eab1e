import json
import time
from pathlib import Path
from uuid import UUID

import pytest
from typer.testing import CliRunner

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.cli import usage
from riglm.cli.main import app
from riglm.domain.invocation import OWN_UPSTREAM, DiscoveryMethod, ErrorKind
from riglm.domain.session import ClientInfo
from tests.records import a_session, an_exposure, an_invocation

runner = CliRunner()
HOSTILE = "evil\x1b[31m[red]\nname"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIGLM_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data" / "riglm.db"


@pytest.fixture
def used(store: Path) -> UUID:
    """A store with one session: two of three tools shown, two called, one call failed."""
    store.parent.mkdir()
    session = a_session(started_at=time.time() - 60, client=ClientInfo(name="tester", version="1"))
    tokens = {"tokens_hidden": 900, "tokens_own": 50}
    shown = an_exposure(session, "read", "unused", hidden=(HOSTILE,), mode="enforce", **tokens)
    failed = {"success": False, "error_kind": ErrorKind.PROTOCOL, "error_code": -32602}
    calls = [
        an_invocation(session, "read", found=DiscoveryMethod.LISTED),
        an_invocation(session, HOSTILE, found=DiscoveryMethod.SEARCHED),
        an_invocation(session, "read", found=DiscoveryMethod.NAMED, **failed),
    ]
    with SqlAnalytics(f"sqlite:///{store}") as analytics:
        analytics.record_many([session, shown, *calls])
    return session.id


def _values(printed: list[object] | dict[str, object]) -> list[object]:
    told = (
        printed
        if isinstance(printed, list)
        else [printed[name] for name in printed if name not in {"explanation", "verdict"}]
    )
    return list(told)


def run(*arguments: str) -> str:
    result = runner.invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize(
    ("command", "words"),
    [("sessions", "nothing recorded yet"), ("tools", "nothing recorded yet"), ("stats", "no session is recorded")],
)
def test_without_a_store_there_is_nothing_yet_and_none_is_made(store: Path, command: str, words: str) -> None:
    assert words in run(command)
    assert not any(value for value in _values(json.loads(run(command, "--json"))))
    assert not store.exists()


def test_a_store_in_memory_has_nothing_to_show(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIGLM_STORAGE__KIND", "memory")
    assert "nothing recorded yet" in run("sessions")


def test_sessions_are_listed_with_their_calls(used: UUID) -> None:
    text = run("sessions")
    assert str(used) in text
    assert "tester 1" in text
    [fields] = json.loads(run("sessions", "--json", "--limit", "1"))
    assert fields["id"] == str(used)
    assert (fields["invocations"], fields["failures"], fields["exposures"]) == (3, 1, 1)
    assert (fields["method"], fields["confidence"], fields["era"]) == ("process", "connection", "handshake")
    assert fields["ended_at"] is None


def test_a_session_is_found_by_its_last_characters(used: UUID) -> None:
    text = run("sessions", str(used)[-6:])
    assert "protocol -32602" in text
    shown = json.loads(run("sessions", str(used), "--json"))
    assert shown["session"]["id"] == str(used)
    assert [call["tool"] for call in shown["invocations"]] == ["read", HOSTILE, "read"]
    assert shown["invocations"][2]["error_code"] == -32602


def test_an_unknown_session_is_an_error_that_says_what_to_do(used: UUID) -> None:
    result = runner.invoke(app, ["sessions", "nothing-like-it"])
    assert result.exit_code == 1
    assert "copy the session from `riglm sessions`" in str(result.exception)


def test_tools_are_listed_unused_ones_too(used: UUID) -> None:
    tools = json.loads(run("tools", "--json"))
    assert [(tool["tool"], tool["invocations"], tool["failures"]) for tool in tools] == [
        ("read", 2, 1),
        (HOSTILE, 1, 0),
        ("unused", 0, 0),
    ]
    assert tools[2]["last_used"] is None
    assert "unused" in run("tools")


def test_a_name_chosen_by_a_stranger_cannot_control_the_terminal(used: UUID) -> None:
    for command in (["tools"], ["sessions", str(used)], ["stats"]):
        text = run(*command)
        assert "evil?[31m[red]?name" in text
        assert "\x1b[31m" not in text


def test_stats_sum_up_and_show_what_is_used_together(used: UUID) -> None:
    totals = json.loads(run("stats", "--json"))
    pairs = totals.pop("cooccurrences")
    [lists] = totals.pop("exposures")
    assert "`riglm report`" in totals.pop("explanation")
    assert totals.pop("verdict") == json.loads(run("report", "--json"))["verdict"]
    assert totals == {
        "sessions": 1,
        "calls": 3,
        "failed_calls": 1,
        "meta_tool_calls": 0,
        "tools_seen": 3,
        "tools_used": 2,
        "calls_found_by_search": 1,
        "hit_rate_percent": 50.0,
        "searches_per_session": 0.0,
        "list_changes_per_session": 0.0,
    }
    assert lists["priced"]["sessions"] == 1
    assert lists["priced"]["price"] is None
    assert (lists["mode"], lists["lists"], lists["tokens_hidden"], lists["tokens_net"]) == ("enforce", 1, 900, 850)
    assert [(pair["tool_a"], pair["tool_b"], pair["count"]) for pair in pairs] == [(HOSTILE, "read", 1)]
    text = run("stats")
    assert "Used together" in text
    assert "net saved" in text
    assert "enforce: price " not in text  # one session has none


def test_stats_count_riglm_s_own_tools_apart(store: Path, used: UUID) -> None:
    before = json.loads(run("stats", "--json"))
    own = an_invocation(a_session(id=used), "call_tool", upstream=OWN_UPSTREAM, found=DiscoveryMethod.LISTED)
    with SqlAnalytics(f"sqlite:///{store}") as analytics:
        analytics.record_many([own])
    assert json.loads(run("stats", "--json")) == {**before, "meta_tool_calls": 1}


def test_stats_are_watched_until_an_interrupt(used: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = iter([None])

    def sleep(_: float) -> None:
        if next(rounds, True):
            raise KeyboardInterrupt

    monkeypatch.setattr(usage.time, "sleep", sleep)
    assert "Recorded in all sessions" in run("stats", "--watch")
    assert next(rounds, None) is None
