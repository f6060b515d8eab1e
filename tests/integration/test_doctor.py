"""`riglm doctor` in front of what is really broken: one run finds all of it."""

import json
import os
import shlex
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from riglm.adapters.analytics import tables
from tests.preloaded import riglm_command

LISTING = Path(__file__).with_name("listing_server.py")
ROOT = Path(__file__).parents[2]
SCRIPTED = ["tests.interaction.servers.scripted", "--eras", "modern", "--stubborn"]
SECRET = "wq8Zk2-very-secret-3Jd9"
LONG_NAME = "tool_" + "x" * 75
EMPTY = {"type": "object"}
TOOLS = [
    {"name": "plain", "description": "Good.", "inputSchema": EMPTY},
    {"name": LONG_NAME, "description": "Long.", "inputSchema": EMPTY},
    {"name": "broken", "description": "Its schema is none.", "inputSchema": {"type": "object", "required": "all"}},
    {"name": "dumb", "inputSchema": {"type": "object", "properties": {"many": {"type": "array"}}}},
]
Found = list[dict[str, str]]


class Refusal(BaseHTTPRequestHandler):
    """Lets nobody in."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(401)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def refusing() -> Iterator[int]:
    """The port of a server that answers every request with 401."""
    with HTTPServer(("127.0.0.1", 0), Refusal) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture(scope="module")
def taken() -> Iterator[int]:
    """A port on which somebody listens who says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


def examined(directory: Path, *words: str, config: str = "riglm.yaml") -> tuple[int, Any]:
    """The exit code of one run with the configuration `config`, if there is one, and what it told programs."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "RIGLM_DATA_DIR": str(directory / "data")}
    named = ["--config", config] if config and (directory / config).is_file() else []
    command = riglm_command("doctor", "--json", *named, *words)
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False, timeout=110
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def python(code: str, **more: Any) -> dict[str, Any]:
    """A server that is a piece of Python."""
    return {"command": sys.executable, "args": ["-c", code], **more}


def scripted(log: Path) -> dict[str, Any]:
    """A server of the modern era that does not heed SIGTERM, and writes down what it hears."""
    words = ["-m", *SCRIPTED, "--log", str(log)]
    return {"command": sys.executable, "args": words, "env": {"PYTHONPATH": str(ROOT)}}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory, refusing: int, taken: int) -> tuple[int, Any]:
    """One run in front of everything that is broken."""
    directory = tmp_path_factory.mktemp("broken")
    (directory / "tools.json").write_text(json.dumps(TOOLS), "utf-8")
    good = {"command": sys.executable, "args": [str(LISTING), str(directory / "tools.json")]}
    noise = f"print('Listening!', flush=True); import runpy, sys; sys.argv[1:] = {good['args'][1:]!r}; "
    servers = {
        "good": good,
        "noisy": python(f"{noise}runpy.run_path({good['args'][0]!r}, run_name='__main__')"),
        "leaving": python(
            "import os, sys; sys.exit('The API_KEY is not set, not ' + os.environ['MY_TOKEN'])",
            env={"MY_TOKEN": SECRET},
        ),
        "hanging": python("import sys; sys.stdin.read()"),
        "downloading": {"command": str(directory / "npx"), "args": ["server"]},
        "modern": scripted(directory / "log"),
        "absent": {"command": "uvx-that-nobody-has"},
        "guarded": {"url": f"http://127.0.0.1:{refusing}/mcp"},
        "plain": {"url": f"https://127.0.0.1:{refusing}/mcp"},
    }
    (directory / "npx").write_text("#!/bin/sh\nexec sleep 60\n", "utf-8")
    (directory / "npx").chmod(0o755)
    settings = {
        "mcpServers": servers,
        "control": {"enabled": True, "port": taken},
        "downstream": {"port": 0},
        "timeouts": {"shutdown": 0.2},
        "embedder": {"model": "BAAI/bge-small-en-v1.5", "directory": str(directory / "models")},
    }
    (directory / "riglm.yaml").write_text(json.dumps(settings), "utf-8")
    (directory / "riglm.yaml").chmod(0o644)
    (directory / "data").mkdir()
    tables.upgrade(f"sqlite:///{directory / 'data' / 'riglm.db'}")
    with sqlite3.connect(directory / "data" / "riglm.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    code, told = examined(directory, "--deadline", "8")
    return code, told | {"directory": str(directory)}


def at(told: Any, section: str, place: str = "") -> Found:
    """What was found in a section, of one place if it is named."""
    return [each for each in told["findings"] if each["section"] == section and place in each["place"]]


def only(found: Found, severity: str) -> dict[str, str]:
    """The one finding of this weight."""
    (one,) = (each for each in found if each["severity"] == severity)
    return one


def test_a_broken_installation_is_not_healthy(broken: tuple[int, Any]) -> None:
    code, told = broken
    assert (code, told["healthy"]) == (1, False)
    assert all(each["fix"] for each in told["findings"] if each["severity"] in {"warning", "error"})


def test_a_server_that_works_is_told_with_its_tools_and_eras(broken: tuple[int, Any]) -> None:
    assert "4 tools in" in only(at(broken[1], "servers", "good"), "ok")["what"]
    assert "handshake (2025-11-25)" in only(at(broken[1], "servers", "good"), "ok")["what"]


def test_a_server_of_the_modern_era_is_told_as_such(broken: tuple[int, Any]) -> None:
    assert only(at(broken[1], "servers", "modern"), "ok")["what"].endswith("era modern")


def test_a_server_that_a_launcher_still_downloads_is_a_note(broken: tuple[int, Any]) -> None:
    assert "is still starting after 8 s" in only(at(broken[1], "servers", "downloading"), "note")["what"]


def test_every_server_is_ended(broken: tuple[int, Any]) -> None:
    left = [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]
    mine = [words for words in left if any(broken[1]["directory"] in word for word in words or ())]
    assert not [words for words in mine if "riglm.adapters.embedding.model_server" not in words]  # it ends later


@pytest.mark.parametrize(
    ("server", "severity", "what", "fix"),
    [
        ("noisy", "warning", "no message on its standard output (1 line", "standard error"),
        ("leaving", "error", "exited with code 1; it said: The API_KEY is not set", "mcpServers.leaving.env"),
        ("hanging", "error", "within 8 s", "run it by hand"),
        ("absent", "error", "'uvx-that-nobody-has' was not found", "install uvx-that-nobody-has"),
        ("guarded", "error", "HTTP 401", "riglm login guarded"),
        ("plain", "error", "Cannot connect", "http:// in `url`"),
    ],
)
def test_each_broken_server_is_told_with_what_to_do(
    broken: tuple[int, Any], server: str, severity: str, what: str, fix: str
) -> None:
    found = only(at(broken[1], "servers", server), severity)
    assert what in found["what"]
    assert fix in found["fix"]


def test_no_secret_is_told(broken: tuple[int, Any]) -> None:
    assert SECRET not in json.dumps(broken[1])
    assert "***" in only(at(broken[1], "servers", "leaving"), "error")["what"]


def test_an_open_file_that_holds_a_secret_is_told(broken: tuple[int, Any]) -> None:
    assert only(at(broken[1], "configuration"), "warning")["fix"].startswith("chmod 600 ")


def test_tools_that_providers_refuse_are_told(broken: tuple[int, Any]) -> None:
    told = {each["what"] for each in at(broken[1], "tools") if each["severity"] == "warning"}
    assert any("good__broken" in each["place"] for each in at(broken[1], "tools"))
    assert any("an array without `items`" in what for what in told)


def test_a_store_of_a_newer_riglm_is_told(broken: tuple[int, Any]) -> None:
    assert "9999" in only(at(broken[1], "store", "schema"), "error")["what"]


def test_a_model_that_is_not_there_is_told_with_what_stands_in(broken: tuple[int, Any]) -> None:
    found = only(at(broken[1], "embedder"), "warning")
    assert "all-MiniLM-L6-v2-int8" in found["what"]
    assert found["fix"].startswith("riglm embedder pull BAAI/bge-small-en-v1.5")


def test_a_taken_port_is_told(broken: tuple[int, Any]) -> None:
    assert "taken by" in only(at(broken[1], "ports", "control"), "warning")["what"]


def test_after_init_each_client_s_configuration_is_examined_and_a_server_of_both_is_visited_once(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    server = scripted(log)
    (tmp_path / ".cursor").mkdir()
    for file in (tmp_path / ".claude.json", tmp_path / ".cursor" / "mcp.json"):
        file.write_text(json.dumps({"mcpServers": {"same": server}}), "utf-8")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "RIGLM_DATA_DIR": str(tmp_path / "data")}
    init = riglm_command("init", "--yes")
    subprocess.run(init, cwd=tmp_path, env=environment, capture_output=True, check=True, timeout=60)
    sections = ("configuration", "servers", "clients")
    _, told = examined(tmp_path, *(word for section in sections for word in ("--only", section)))
    assert {each["place"] for each in at(told, "servers")} == {"claude-code, cursor: same"}
    assert {each["severity"] for each in told["findings"]} == {"ok"}
    assert log.read_text("utf-8").count("tools/list") == 1
    (tmp_path / ".cursor" / "mcp.json").write_text('{"mcpServers": {}}', "utf-8")
    _, told = examined(tmp_path, "--only", "clients")
    assert "does not start riglm any more" in only(at(told, "clients", "cursor"), "warning")["what"]


def test_servers_of_a_project_are_looked_for_there_wherever_doctor_is_asked(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "tools").mkdir(parents=True)
    server = scripted(tmp_path / "log")
    words = " ".join(map(shlex.quote, (server["command"], *server["args"])))
    script = project / "tools" / "run.sh"
    script.write_text(f"#!/bin/sh\nexec {words}\n", "utf-8")
    script.chmod(0o700)
    env = server["env"]
    servers = {
        "relative": {"command": "./tools/run.sh", "env": env},
        "inside": {"command": "./run.sh", "cwd": "tools", "env": env},
    }
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": servers}), "utf-8")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "RIGLM_DATA_DIR": str(tmp_path / "data")}
    init = riglm_command("init", "--yes", "--project", ".")
    subprocess.run(init, cwd=project, env=environment, capture_output=True, check=True, timeout=60)
    _, told = examined(tmp_path, "--only", "servers", "--only", "configuration")
    found = {(each["place"], each["severity"]) for each in at(told, "servers")}
    slow = {("relative", "note"), ("inside", "note")}  # a busy machine takes long to start them
    assert found - slow == {("relative", "ok"), ("inside", "ok")}


def test_servers_of_a_file_that_lies_in_the_directory_are_not_started_before_it_is_named(tmp_path: Path) -> None:
    log = tmp_path / "log"
    (tmp_path / "riglm.yaml").write_text(json.dumps({"mcpServers": {"found": scripted(log)}}), "utf-8")
    _, told = examined(tmp_path, "--only", "servers", config="")
    found = only(at(told, "servers", "found"), "note")
    assert "was not started" in found["what"]
    assert found["fix"] == f"riglm doctor --config {tmp_path / 'riglm.yaml'}"
    assert not log.exists()


def test_a_data_directory_that_others_may_write_to_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o777)
    _, told = examined(tmp_path, "--only", "store")
    assert "other users of this machine may write" in only(at(told, "store", "data"), "warning")["what"]
