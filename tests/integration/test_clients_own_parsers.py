"""What riglm writes into clients' files is read by the clients themselves: the real programs, off the network."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import npm
from tests.preloaded import riglm_command
from tests.unit.application.setup.shapes import CLAUDE_CODE, CODEX, GEMINI, OPENCODE, Shape

pytestmark = pytest.mark.timeout(900)  # the first run installs the programs
SECONDS = 120
SERVER = {"command": sys.executable, "args": ["-m", "benchmarks.load.upstream", "stdio", "3"]}
ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    return home


def environment(home: Path) -> dict[str, str]:
    """A home of its own, and a proxy for all but loopback that leads nowhere."""
    return {
        "HOME": str(home),
        "PATH": f"{npm.node.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "127.0.0.1,localhost",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "MCP_TIMEOUT": "60000",
    }


def said(home: Path, words: Sequence[str | Path], *, is_quiet: bool = False) -> str:
    """What a program says; of a quiet one only what is meant for other programs."""
    run = subprocess.run(
        words,
        env=environment(home),
        cwd=home / "work",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if is_quiet else subprocess.STDOUT,
        timeout=SECONDS,
        check=False,
        text=True,
    )
    assert run.returncode == 0, run.stdout
    return run.stdout


def riglm(home: Path, *words: str) -> str:
    return said(home, riglm_command(*words))


def put(home: Path, shape: Shape, text: str | None = None) -> Path:
    file = home / shape.file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(shape.content if text is None else text.encode())
    return file


def claude_code() -> list[str | Path]:
    package = npm.installed("@anthropic-ai/claude-code", "2.1.330")
    return sorted(package.parent.glob("claude-code-*/claude"))[:1]


def codex() -> list[str | Path]:
    return [npm.node, npm.installed("@openai/codex", "0.169.0") / "bin" / "codex.js"]


def test_claude_code_connects_to_riglm_and_what_it_writes_into_its_file_meanwhile_stays(home: Path) -> None:
    said_before = {**json.loads(CLAUDE_CODE.text), "hasCompletedOnboarding": True}
    said_before["mcpServers"] = {"load": {"type": "stdio", **SERVER, "env": {}}}
    file = put(home, CLAUDE_CODE, json.dumps(said_before, indent=2))
    before = file.read_bytes()
    riglm(home, "init", "--yes")
    once = file.read_bytes()
    listed = said(home, [*claude_code(), "mcp", "list"])
    assert "riglm:" in listed
    assert "Connected" in listed.partition("riglm:")[2]
    assert "load:" not in listed
    changed = json.loads(file.read_bytes())
    riglm(home, "undo", "--yes")
    assert json.loads(file.read_bytes()) == {**changed, "mcpServers": said_before["mcpServers"]}
    file.write_bytes(before)
    riglm(home, "init", "--yes")
    assert file.read_bytes() == once
    riglm(home, "undo", "--yes")
    assert file.read_bytes() == before


def test_claude_code_and_codex_see_what_is_behind_riglm_for_a_user_and_for_a_project_together(home: Path) -> None:
    work = str(home / "work")
    server = {"type": "stdio", **SERVER, "env": {}}
    claude = {**json.loads(CLAUDE_CODE.text), "hasCompletedOnboarding": True, "mcpServers": {"load": server}}
    claude["projects"] = {work: {"mcpServers": {"near": server}, "enabledMcpjsonServers": ["riglm-work"]}}
    put(home, CLAUDE_CODE, json.dumps(claude))
    (home / "work" / ".mcp.json").write_text(json.dumps({"mcpServers": {"here": server}}), "utf-8")
    user = '[mcp_servers.load]\ncommand = "sh"\n'
    put(home, CODEX, f'[projects."{work}"]\ntrust_level = "trusted"\n{user}')
    (home / "work" / ".codex").mkdir()
    (home / "work" / ".codex" / "config.toml").write_text('[mcp_servers.here]\ncommand = "sh"\n', "utf-8")
    riglm(home, "init", "--yes")
    riglm(home, "init", "--yes", "--project", ".")
    listed = said(home, [*claude_code(), "mcp", "list"])
    lines = [line.partition(":")[0] for line in listed.splitlines() if "riglm" in line.partition(":")[0]]
    assert sorted(lines) == ["riglm", "riglm-work", "riglm-work-local"], listed
    assert "onflicting" not in listed
    listed = said(home, [*codex(), "mcp", "list", "--json"], is_quiet=True)
    assert {each["name"] for each in json.loads(listed)} == {"riglm", "riglm-work"}


def test_codex_lists_riglm_and_its_other_servers(home: Path) -> None:
    file = put(home, CODEX)
    riglm(home, "init", "--yes")
    configuration = home / ".config" / "riglm" / "codex.yaml"
    listed = json.loads(said(home, [*codex(), "mcp", "list", "--json"], is_quiet=True))
    transports = {server["name"]: server["transport"] for server in listed}
    assert set(transports) == {"riglm", "off"}
    assert transports["riglm"]["args"][-3:] == ["run", "--config", str(configuration)]
    assert transports["riglm"]["env_vars"] == ["FIGMA_TOKEN"]
    assert file.read_text("utf-8").count("# --- profiles ---") == 1
    riglm(home, "undo", "--yes")
    assert file.read_bytes() == CODEX.content
    riglm(home, "init", "--yes")
    said(home, [*codex(), "mcp", "add", "later", "--", "sh"])
    riglm(home, "undo", "--yes")
    later = {"later": {"command": "sh"}}
    wanted = tomllib.loads(CODEX.text)
    assert tomllib.loads(file.read_text("utf-8")) == {**wanted, "mcp_servers": {**wanted["mcp_servers"], **later}}


def test_gemini_and_opencode_list_riglm(home: Path) -> None:
    server = json.dumps(SERVER)
    gemini = put(home, GEMINI, '{\n  // how it looks\n  "mcpServers": {"load": ' + server + "}\n}\n")
    local = json.dumps({"type": "local", "command": [SERVER["command"], *SERVER["args"]], "enabled": True})
    opencode = put(
        home,
        OPENCODE,
        '{\n  "$schema": "https://opencode.ai/config.json",\n  "mcp": {\n    "load": ' + local + ", // it\n  },\n}\n",
    )
    before = gemini.read_bytes(), opencode.read_bytes()
    riglm(home, "init", "--yes")
    gemini_yaml, opencode_yaml = (home / ".config/riglm" / f"{name}.yaml" for name in ("gemini", "opencode-jsonc"))
    program = npm.installed("@google/gemini-cli", "0.61.0") / "bundle" / "gemini.js"
    assert f"riglm run --config {gemini_yaml} (stdio)" in said(home, [npm.node, program, "mcp", "list"])
    program = npm.installed("opencode-ai", "1.18.33").parent / ".bin" / "opencode"
    assert f"run --config {opencode_yaml}" in said(home, [program, "mcp", "list"])
    riglm(home, "undo", "--yes")
    assert (gemini.read_bytes(), opencode.read_bytes()) == before
