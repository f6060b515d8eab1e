"""Claude Code, the real one, works through riglm as without it, and the transcript that it leaves says the same."""

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from benchmarks.cache import import_path
from benchmarks.clients.asking import ask
from benchmarks.clients.installed import PACKAGE, VERSION, program
from benchmarks.clients.scripted_model import ScriptedModel
from benchmarks.subject import RIGLM, Served
from typer.testing import CliRunner

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.cli.main import app
from tests import npm
from tests.preloaded import riglm_command

UPSTREAM = [sys.executable, "-m", "benchmarks.load.upstream", "stdio", "6"]
PREFIX = "mcp__load__"
CALLS = [(f"{PREFIX}bench_echo", {"text": text}) for text in ("one", "two", "three")]
PROMPT = "Compare the echoes of the northern valley"
LIGHT = {"PYTHONPATH": import_path(), "RIGLM_EMBEDDER__PROVIDER": "static"}


@pytest.fixture(scope="module")
def claude() -> Path:
    return program(npm.installed(PACKAGE, VERSION))


def worked(claude: Path, home: Path, server: dict[str, Any]) -> list[dict[str, Any]]:
    """What Claude Code asked its model while it made the calls."""
    with ScriptedModel(CALLS) as model:
        ask(claude, home, {"load": server}, model, PROMPT, ENABLE_TOOL_SEARCH="false")
        return [request for request in model.requests if request.get("tools")]


def told(requests: list[dict[str, Any]]) -> list[Any]:
    """The definitions of the server's tools, as the model is told them first."""
    return [tool for tool in requests[0]["tools"] if tool["name"].startswith(PREFIX)]


def results(requests: list[dict[str, Any]]) -> list[str]:
    """The texts that the calls gave."""
    blocks = (block for message in requests[-1]["messages"] for block in message["content"])
    return [
        json.dumps(block["content"])
        for block in blocks
        if isinstance(block, dict) and block.get("type") == "tool_result"
    ]


@pytest.fixture(scope="module")
def direct(claude: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What Claude Code asks without riglm."""
    server = {"command": UPSTREAM[0], "args": UPSTREAM[1:], "env": {"PYTHONPATH": import_path()}}
    return worked(claude, tmp_path_factory.mktemp("direct"), server)


@contextmanager
def in_front(transport: str, directory: Path) -> Iterator[dict[str, Any]]:
    """riglm in front of the server, as Claude Code's configuration has it."""
    if transport == "stdio":
        command, *arguments = riglm_command("run", "--", *UPSTREAM)
        environment = {**LIGHT, "RIGLM_DATA_DIR": str(directory)}
        yield {"command": command, "args": arguments, "env": environment}
        return
    served = Served(RIGLM, ("--", *UPSTREAM), directory, arguments=(), **LIGHT)
    try:
        yield {"type": "http", "url": f"http://127.0.0.1:{served.port}/mcp"}
    finally:
        served.process.stop()


def learned(home: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What `riglm learn-from` did with the calls in the transcripts of a home."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("RIGLM_DATA_DIR", str(data))
    monkeypatch.setenv("RIGLM_EMBEDDER__PROVIDER", "static")
    done = CliRunner().invoke(app, ["learn-from", str(home / ".claude"), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    calls = json.loads(done.stdout)["clients"][0]["calls"]
    return {name: count for name, count in calls.items() if count}


@pytest.mark.usefixtures("riglm_is_forked")
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_claude_code_sees_and_gets_the_same_through_riglm(
    transport: str, claude: Path, direct: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its calls are one session; its transcript adds none to them, and tells a riglm the same that was not there."""
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    with in_front(transport, data) as server:
        through = worked(claude, tmp_path / "home", server)
    assert len(told(through)) == 6
    assert told(through) == told(direct)
    assert len(results(through)) == len(CALLS)
    assert results(through) == results(direct)

    with SqlAnalytics(f"sqlite:///{data / 'riglm.db'}") as store:
        sessions = [summary.session for summary in store.list_sessions() if summary.invocations]
        assert [session.client.name for session in sessions] == ["claude-code"]
        live = store.list_invocations(sessions[0].id)
    assert [(call.tool, call.success) for call in live] == [("bench_echo", True)] * len(CALLS)
    assert len({call.arguments_hash for call in live}) == len(CALLS)

    assert learned(tmp_path / "home", data, monkeypatch) == {"read": len(CALLS), "recorded_live": len(CALLS)}

    elsewhere.mkdir()
    shutil.copy(data / "riglm.key", elsewhere)
    assert learned(tmp_path / "home", elsewhere, monkeypatch) == {"read": len(CALLS), "new": len(CALLS)}
    with SqlAnalytics(f"sqlite:///{elsewhere / 'riglm.db'}") as store:
        (summary,) = store.list_sessions()
        written = store.list_invocations(summary.session.id)
    assert [call.arguments_hash for call in written] == [call.arguments_hash for call in live]
    assert [(call.tool, call.upstream, call.success) for call in written] == [("load__bench_echo", "load", True)] * 3
