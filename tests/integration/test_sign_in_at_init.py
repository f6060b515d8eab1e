"""`riglm init` and `riglm login --all` with servers that require a sign-in."""

import json
import os
import pty
import re
import subprocess
import sys
import webbrowser
from pathlib import Path

import httpx2
import pytest
import yaml
from benchmarks.clients.scripted_model import ScriptedModel
from benchmarks.hosts.measuring import ask_host
from benchmarks.hosts.rows import HOSTS, Loading, Setup
from typer.testing import CliRunner

from riglm.cli.main import app
from tests import npm
from tests.integration.oauth import Client as OAuthClient
from tests.integration.oauth import sites
from tests.integration.oauth_home import redirect_of
from tests.preloaded import riglm_command
from tests.waiting import WAIT_SECONDS

SECONDS = WAIT_SECONDS
OPEN_PAGE = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1])"


class Machine:
    """A home directory with the files of Claude Code and Codex, and a browser that agrees at once."""

    def __init__(self, directory: Path, guarded: str, unguarded: str) -> None:
        self.directory = directory
        self.claude, self.codex = directory / ".claude.json", directory / ".codex" / "config.toml"
        self.put({"type": "http", "url": guarded}, unguarded)
        self.codex.parent.mkdir()
        self.codex.write_text(f'# mine\n[mcp_servers.notes]\nurl = "{guarded}"\nscopes = ["notes"]\n')
        browser = directory / "browser"
        browser.write_text(f"#!/bin/sh\n{sys.executable} -c '{OPEN_PAGE}' \"$1\" &\n")
        browser.chmod(0o755)

    def put(self, notes, unguarded):
        servers = {"notes": notes, "open": {"type": "http", "url": unguarded}}
        self.claude.write_text(json.dumps({"numStartups": 1, "mcpServers": servers}))

    def run(self, *words):
        """The output of one command, which has to succeed."""
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        return done.output

    def typed(self, answers, *words):
        """The same in a process at a terminal at which these lines are typed."""
        outer, inner = pty.openpty()
        try:
            os.write(outer, answers.encode())
            command = riglm_command(*words)
            done = subprocess.run(command, stdin=inner, capture_output=True, text=True, check=False, timeout=SECONDS)
        finally:
            os.close(outer)
            os.close(inner)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def moved(self):
        """By client, the names of the servers behind riglm."""
        files = (self.directory / ".config" / "riglm").glob("*.yaml")
        return {file.stem: list(yaml.safe_load(file.read_text())["mcpServers"]) for file in files}


@pytest.fixture
def places(monkeypatch):
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")
    with sites() as found:
        yield found


@pytest.fixture
def machine(places, tmp_path, monkeypatch):
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "RIGLM_DATA_DIR", "CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BROWSER", str(tmp_path / "browser"))
    monkeypatch.setenv("RIGLM_EMBEDDER__PROVIDER", "static")
    monkeypatch.setattr(webbrowser, "_tryorder", None)
    monkeypatch.chdir(tmp_path)
    return Machine(tmp_path, *places[1:])


def test_init_signs_in_at_a_terminal_moves_all_servers_and_undo_restores_the_files(machine, places):
    before = machine.claude.read_bytes(), machine.codex.read_bytes()
    assert "Sign in to notes now?" in machine.typed("y\ny\n", "init")
    assert machine.moved() == {"claude-code": ["notes", "open"], "codex": ["notes"]}
    assert len(places[0].authorizations) == 1
    machine.run("undo", "--yes")
    assert (machine.claude.read_bytes(), machine.codex.read_bytes()) == before
    machine.run("init", "--yes")  # the account is still there
    assert machine.moved() == {"claude-code": ["notes", "open"], "codex": ["notes"]}


def test_a_server_stays_with_its_client_until_the_user_has_signed_in(machine):
    codex = machine.codex.read_bytes()
    machine.typed("n\ny\n", "init")
    assert machine.moved() == {"claude-code": ["open"]}
    output = machine.run("init", "--yes")
    assert "stays: notes: it requires a sign-in: `riglm login notes`, then `riglm init` again" in output
    assert machine.codex.read_bytes() == codex
    assert json.loads(machine.claude.read_text())["mcpServers"]["notes"]
    assert json.loads(machine.run("init", "--dry-run", "--json"))["places"][0]["sign_ins"] == ["notes"]
    machine.run("login", "notes")
    machine.run("init", "--yes")
    assert machine.moved() == {"claude-code": ["notes", "open"], "codex": ["notes"]}


def test_login_all_signs_in_once_to_the_servers_that_require_it(machine, places):
    machine.run("init", "--yes", "--include", "notes")
    assert machine.run("login", "--all").count("signed in to") == 1
    assert "no server requires a sign-in" in machine.run("login", "--all")
    assert len(places[0].authorizations) == 1


def test_login_all_reads_one_pasted_url_for_each_server_and_goes_on_after_a_failure(machine, places):
    servers = {"first": {"url": places[1]}, "second": {"url": places[1]}, "gone": {"url": "http://127.0.0.1:9/mcp"}}
    Path("riglm.yaml").write_text(json.dumps({"mcpServers": servers}))
    command = riglm_command("login", "--all", "--no-browser")
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, **pipes) as login:
        urls = (line.strip() for line in login.stderr if line.startswith("http"))
        assert httpx2.get(redirect_of(next(urls))).status_code == 200  # over loopback: nothing is pasted
        out, err = login.communicate(redirect_of(next(urls)) + "\n", timeout=SECONDS)
    assert login.returncode == 1
    assert [line.partition(" at ")[0] for line in out.splitlines()] == ["signed in to first", "signed in to second"]
    assert "gone does not respond" in err


def test_the_registered_client_of_an_entry_signs_in(machine, places):
    issuer, guarded, unguarded = places
    metadata = {"redirect_uris": ["*"], "token_endpoint_auth_method": "client_secret_basic"}
    issuer.clients["of-claude"] = OAuthClient("of-claude", "s3cret-of-claude", metadata)
    oauth = {"clientId": "of-claude", "clientSecret": "s3cret-of-claude", "scopes": "notes more"}
    machine.put({"type": "http", "url": guarded, "oauth": oauth}, unguarded)
    machine.codex.unlink()
    machine.typed("y\n", "login", "notes")
    assert [(each["client_id"], each["scope"]) for each in issuer.authorizations] == [("of-claude", "notes more")]
    assert "s3cret" not in machine.run("init", "--yes", "--diff")
    assert machine.moved() == {"claude-code": ["notes", "open"]}


@pytest.mark.parametrize("client", ["claude-code", "codex"])
def test_the_programs_from_npm_call_a_server_that_was_moved(machine, client):
    machine.typed("y\ny\n", "init")
    host = next(host for host in HOSTS if host.client == client and host.loading is Loading.ALL)
    (machine.directory / "work").mkdir()
    with ScriptedModel([("add", {"a": 20, "b": 22})]) as model:
        setup = Setup(home=machine.directory, url=model.url, command=())
        ask_host(host, setup, npm.installed(host.package, host.version))
        assert any(tool.name.endswith("add") for tool in model.loaded[-1])
        assert re.search(r"\W42\W", json.dumps(model.requests[-1]))
