"""What the quickstart tells to type was typed: all of it, in its order, on a home of its own with real servers."""

import asyncio
import json
import os
import sys
import time
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters, stdio_client

from tests.documents.page import ROOT, Page
from tests.documents.typed import typed
from tests.interaction.stage import Process
from tests.started import free_port
from tests.waiting import WAIT_SECONDS

SHELLS = {"sh", "bash", "console", "shell"}
QUICKSTART = [code for code in Page.read(ROOT / "docs" / "quickstart.md").code() if code.language != "inline"]
SERVERS = ("memory", "office")
WANTED = {
    *(f"memory__{tool}" for tool in ("create_entities", "search_nodes", "read_graph")),
    *(f"office__{tool}" for tool in ("add_task", "list_tasks", "finish_task")),
}
_PATIENCE_S = WAIT_SECONDS


def test_every_block_of_code_is_run_or_is_no_command() -> None:
    assert {code.language for code in QUICKSTART} - SHELLS <= {"text", "json", "yaml"}
    lines = [line for code in QUICKSTART if code.language in SHELLS for line in code.text.splitlines()]
    steps = ("init", "doctor", "learn-from", "sessions", "tools", "stats", "report", "enforce", "undo")
    assert {"pip install", *(f"riglm {step}" for step in steps)} <= {" ".join(line.split()[:2]) for line in lines}


@pytest.mark.timeout(400)
def test_all_that_the_quickstart_tells_to_type_works_in_its_order(tmp_path: Path) -> None:
    """Where the page says to work with the client, its configuration is followed as the client would."""
    home, project = tmp_path / "home", tmp_path / "project"
    project.mkdir()
    client = _a_client(home)
    before, environment, told = client.read_bytes(), _environment(home, tmp_path / "installed"), {}
    for code in QUICKSTART:
        if code.language not in SHELLS:
            continue
        outcome = typed(code.text, ROOT if code.title == "in a checkout" else project, environment)
        assert outcome.code == 0, f"{outcome.block}\n{outcome.output}"
        told[" ".join(code.text.split()[:2])] = outcome.output
        if code.text.startswith("riglm init"):
            servers = json.loads(client.read_bytes())["mcpServers"]
            assert set(servers) == {"riglm"}
            assert asyncio.run(_a_session(servers["riglm"], environment)) >= WANTED
    assert "healthy" in told["riglm doctor"]
    assert "office__add_task" in told["riglm sessions"]
    assert "transcript" in told["riglm sessions"]
    assert "filtering.mode is now enforce" in told["riglm enforce"]
    assert client.read_bytes() == before


def test_the_dashboard_shows_what_clients_record_and_starts_none_of_their_servers(tmp_path: Path) -> None:
    home, port = tmp_path / "home", free_port()
    client = _a_client(home)
    environment = _environment(home, tmp_path) | {"RIGLM_CONTROL__PORT": str(port)}
    assert typed("riglm init --yes", tmp_path, environment).code == 0
    asyncio.run(_a_session(json.loads(client.read_bytes())["mcpServers"]["riglm"], environment))
    guide = Page.read(ROOT / "docs" / "how-to" / "dashboard.md")
    [command] = [code.text for code in guide.code() if code.language == "sh" and "--config" in code.text]
    dashboard = Process(["bash", "-c", f"exec {command}"], environment, tmp_path / "stderr")
    try:
        dashboard.wait_for_port(port)
        sessions, health = (_get(f"http://127.0.0.1:{port}{path}") for path in ("/sessions", "/health"))
    finally:
        dashboard.end()
    assert [session["invocations"] for session in sessions["items"]] == [2]
    assert {upstream["name"]: upstream["state"] for upstream in health["upstreams"]} == dict.fromkeys(SERVERS, "idle")


def _get(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=_PATIENCE_S) as response:
        found: dict[str, Any] = json.load(response)
        return found


def _a_client(home: Path) -> Path:
    """A home in which Claude Code has two servers, and has used one of them."""
    transcripts = home / ".claude" / "projects" / "-home-ann-garden"
    transcripts.mkdir(parents=True)
    transcripts.joinpath("0f7c1d52-4c8e-4d53-9b57-1f0a2f3b6c11.jsonl").write_text(_transcript(), "utf-8")
    servers = {name: {"command": sys.executable, "args": ["-m", "riglm.demo.server", name]} for name in SERVERS}
    file = home / ".claude.json"
    file.write_text(json.dumps({"numStartups": 7, "mcpServers": servers, "theme": "dark"}, indent=2) + "\n", "utf-8")
    return file


def _transcript() -> str:
    """Two calls of one session as Claude Code writes them down."""
    same = {"sessionId": "0f7c1d52-4c8e-4d53-9b57-1f0a2f3b6c11", "cwd": "/home/ann/garden", "version": "2.1.330"}
    lines = [{"type": "user", "message": {"role": "user", "content": "note the seeds"}}]
    for number, tool in enumerate(("add_task", "list_tasks")):
        use = {"type": "tool_use", "id": f"toolu_{number}", "name": f"mcp__office__{tool}", "input": {"text": "seeds"}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "seeds"}
        lines.append({"type": "assistant", "message": {"role": "assistant", "content": [use]}})
        lines.append({"type": "user", "message": {"role": "user", "content": [result]}})
    began = datetime.now(UTC) - timedelta(days=2)
    stamped = [
        same | line | {"uuid": f"u{number}", "timestamp": (began + timedelta(seconds=number)).isoformat()}
        for number, line in enumerate(lines)
    ]
    return "".join(json.dumps(line) + "\n" for line in stamped)


def _environment(home: Path, installed: Path) -> dict[str, str]:
    """A shell's, in which `pip install` puts what it builds into `installed`, and what lies there comes first."""
    ours = Path(sys.executable).parent
    return {
        "HOME": str(home),
        "PATH": f"{installed / 'bin'}:{ours}:{os.environ['PATH']}",
        "PYTHONPATH": str(installed),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "COLUMNS": "160",
        "PIP_TARGET": str(installed),
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip's word for: none
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "RIGLM_EMBEDDER__PROVIDER": "static",
    }


async def _a_session(entry: dict[str, object], environment: dict[str, str]) -> set[str]:
    """What a client does with this entry: start it, list, call two tools; gives the names listed."""
    server = StdioServerParameters.model_validate({**entry, "env": environment})
    deadline = time.monotonic() + _PATIENCE_S
    async with Client(stdio_client(server), read_timeout_seconds=_PATIENCE_S) as client:
        names: set[str] = set()
        while not names >= WANTED and time.monotonic() < deadline:  # a server that starts late joins late
            names = {tool.name for tool in (await client.list_tools(cache_mode="refresh")).tools}
            await asyncio.sleep(0.1)
        await client.call_tool("office__add_task", {"text": "sow the peas"})
        await client.call_tool("office__list_tasks", {})
    return names
