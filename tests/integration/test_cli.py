"""The command as users start it: a process of its own, its streams, its exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("riglm_is_forked")]


class Shell:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("RIGLM_")}
        self.environment |= {"RIGLM_DATA_DIR": str(directory / "data"), "COLUMNS": "200"}

    def run(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "riglm", *words],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_help_names_every_command(shell: Shell) -> None:
    text = shell.run("--help").stdout
    for command in ("run", "serve", "sessions", "tools", "stats", "config", "db", "demo"):
        assert f"\n  {command} " in text


def test_a_bad_configuration_is_told_on_stderr_and_exits_with_2(shell: Shell) -> None:
    (shell.directory / "riglm.yaml").write_text("mcpServers: {a: {command: no-such-program}}\nnaming: nope\n", "utf-8")
    done = shell.run("run", code=2)
    assert done.stdout == ""
    assert done.stderr.startswith("riglm: ")
    assert "riglm.yaml: naming: this is none of the choices — fix:" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_failure_is_told_on_stderr_and_exits_with_1(shell: Shell) -> None:
    shell.run("db", "upgrade")
    done = shell.run("sessions", "no-such-session", code=1)
    assert done.stderr.startswith("riglm: no session ends in 'no-such-session'")


def test_a_store_that_is_no_database_is_an_error_and_no_traceback(shell: Shell) -> None:
    (shell.directory / "data").mkdir()
    (shell.directory / "data" / "riglm.db").write_bytes(b"not a database" * 1000)
    done = shell.run("sessions", code=2)
    assert done.stderr.startswith("riglm: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", ["config schema", "stats", "--help"])
def test_a_reader_that_has_left_causes_no_complaint(shell: Shell, words: str) -> None:
    if words == "stats":
        shell.run("db", "upgrade")
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "riglm", *words.split()],
            cwd=shell.directory,
            env=shell.environment,
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writer)
    assert done.stderr == b""


def test_run_imports_nothing_heavy_before_it_forwards(shell: Shell) -> None:
    """Up to the door of the engine only pydantic may cost much: a client waits for the first list."""
    program = """
import sys
from riglm import running
running.run_stdio = lambda settings: print(*sys.modules) or 0
sys.argv = ["riglm", "run", "--", "sh"]
from riglm.cli.entry import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=shell.directory,
        env=shell.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "pydantic" in loaded
    assert not loaded & {
        "typer",
        "yaml",
        "rich",
        "sqlalchemy",
        "alembic",
        "mcp",
        "mcp_types",
        "uvicorn",
        "fastapi",
        "starlette",
        "structlog",
        "httpx",
        "numpy",
        "riglm.adapters.prediction",
    }


def test_serving_ends_with_2_when_the_port_is_taken(shell: Shell) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = shell.run("serve", "--port", str(port), "--", "cat", code=2)
    assert str(port) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_one_elses(shell: Shell, closed: str) -> None:
    """A store or a socket under the number of a standard stream would get what is meant for that stream."""
    (shell.directory / "server.py").write_text(_SERVER, "utf-8")
    words = ["run", "--log-level", "debug", "--", sys.executable, "-I", "-S", "server.py"]
    asked = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "riglm", *words],
        cwd=shell.directory,
        env=shell.environment,
        input=json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": asked}) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    if closed == "2>&-":
        assert json.loads(done.stdout)["result"] == {"asked": "initialize"}
    shell.run("stats")


_SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"asked": asked["method"]}}
        print(json.dumps(answer), flush=True)
"""
