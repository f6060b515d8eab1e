"""`riglm enforce` and `riglm shadow`."""

import json
import sys

import pytest

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.cli import main as entrance
from riglm.domain.session import ClientInfo
from tests.records import a_session
from tests.started import free_port

FILE = """\
# of the house
upstream: {url: "http://127.0.0.1:9/mcp", auth: {type: bearer, token: "${NOBODY_SET_THIS}"}}

filtering:   # what is shown
    mode: shadow   # look first
    max_tools: 12
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty directory to work in, with a home and a store of its own, and no riglm that runs."""
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "RIGLM_CONTROL_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RIGLM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("RIGLM_CONTROL__PORT", str(free_port()))
    return tmp_path / "work"


@pytest.fixture
def riglm(monkeypatch, capsys):
    """Runs a command; its exit code, stdout and stderr."""

    def riglm(*words):
        monkeypatch.setattr(sys, "argv", ["riglm", *words])
        with pytest.raises(SystemExit) as left:
            entrance.main()
        return left.value.code or 0, *capsys.readouterr()

    return riglm


def test_one_word_of_the_file_changes_and_back(place, riglm):
    file = place / "riglm.yaml"
    file.write_text(FILE)
    code, out, _ = riglm("enforce")
    assert code == 0
    assert "riglm.yaml says now filtering.mode: enforce (it was shadow)" in out
    assert "restart your client" in out
    assert file.read_text() == FILE.replace("mode: shadow", "mode: enforce")
    assert riglm("shadow")[0] == 0
    assert file.read_text() == FILE


def test_what_is_so_already_stays_untouched(place, riglm):
    file = place / "riglm.yaml"
    file.write_text(FILE)
    before = file.stat()
    code, out, _ = riglm("shadow")
    assert (code, out) == (0, "riglm.yaml: filtering.mode is shadow already\n")
    assert (file.read_text(), file.stat().st_ino) == (FILE, before.st_ino)


@pytest.mark.parametrize("words", [(), ("--dry-run",), ("--file-only",)])
def test_a_file_without_write_permission_was_protected_on_purpose_and_stays(place, riglm, words):
    file = place / "riglm.yaml"
    file.write_text(FILE)
    file.chmod(0o444)
    code, out, error = riglm("enforce", *words)
    assert (code, out) == (2, "")
    assert "has no write permission" in error
    assert "chmod u+w" in error
    assert "persist" not in error
    assert file.read_text() == FILE
    assert [each.name for each in place.iterdir()] == ["riglm.yaml"]


def test_a_file_that_says_nothing_of_it_gets_a_line(place, riglm):
    file = place / "other.yaml"
    file.write_text("upstream: {command: [server]}  # one\n")
    assert "already" in riglm("enforce", "--config", "other.yaml")[1]
    assert riglm("shadow", "--config", "other.yaml")[0] == 0
    assert file.read_text() == "upstream: {command: [server]}  # one\nfiltering:\n  mode: shadow\n"


def test_a_dry_run_shows_the_lines_and_leaves_nothing_behind(place, riglm):
    (place / "riglm.yaml").write_text(FILE)
    code, out, _ = riglm("enforce", "--dry-run")
    assert code == 0
    assert "-    mode: shadow   # look first" in out
    assert "+    mode: enforce   # look first" in out
    assert [each.name for each in place.iterdir()] == ["riglm.yaml"]
    assert (place / "riglm.yaml").read_text() == FILE


@pytest.mark.parametrize(
    ("text", "variable", "said"),
    [
        (FILE, ("RIGLM_FILTERING__MODE", "shadow"), "RIGLM_FILTERING__MODE sets it to shadow"),
        (FILE, ("RIGLM_FILTERING__ENABLED", "false"), "RIGLM_FILTERING__ENABLED sets it to false"),
        (FILE.replace("mode: shadow", "enabled: false"), ("X", "x"), "riglm.yaml sets it to false"),
        (FILE.replace("mode: shadow", "mode: ${MODE:-shadow}"), ("X", "x"), "the file takes it from a variable"),
        (FILE.replace("mode: shadow", "mode: sometimes"), ("X", "x"), "filtering.mode"),
        ("upstream: [\n", ("X", "x"), "riglm.yaml"),
    ],
)
def test_where_the_file_does_not_decide_or_cannot_be_changed_it_says_why_and_changes_nothing(
    place, riglm, monkeypatch, text, variable, said
):
    (place / "riglm.yaml").write_text(text)
    monkeypatch.setenv(*variable)
    code, out, told = riglm("enforce")
    assert (code, out) == (2, "")
    assert said in told
    assert "— fix: " in told
    assert "persist" not in told
    assert [each.name for each in place.iterdir()] == ["riglm.yaml"]
    assert (place / "riglm.yaml").read_text() == text


def test_without_a_file_it_says_what_to_name(place, riglm):
    code, _, told = riglm("enforce")
    assert code == 2
    assert "--config" in told
    assert "riglm init" in told


def test_what_init_made_is_switched_all_of_it_or_for_one_client(place, riglm, tmp_path):
    servers = {"mcpServers": {"notes": {"command": sys.executable, "args": ["-c", "pass"]}}}
    for file in (".cursor/mcp.json", ".gemini/settings.json"):
        (tmp_path / "home" / file).parent.mkdir()
        (tmp_path / "home" / file).write_text(json.dumps(servers))
    assert riglm("init", "--yes", "--client", "cursor", "--client", "gemini")[0] == 0
    one = json.loads(riglm("enforce", "--client", "cursor", "--json")[1])
    assert [(each["client"], each["before"], each["changed"]) for each in one["files"]] == [("cursor", "shadow", True)]
    _, out, _ = riglm("enforce")
    assert "restart gemini for it to count" in out
    assert riglm("enforce", "--client", "zed")[0] == 2
    assert riglm("undo", "--yes")[0] == 0
    assert json.loads((tmp_path / "home" / ".cursor" / "mcp.json").read_text()) == servers


def test_clients_with_open_sessions_are_named(place, riglm, tmp_path):
    (place / "riglm.yaml").write_text(FILE)
    (tmp_path / "data").mkdir()
    with SqlAnalytics(f"sqlite:///{tmp_path / 'data' / 'riglm.db'}") as store:
        store.record_many(
            [a_session(client=ClientInfo(name="editor")), a_session(client=ClientInfo(name="done"), ended_at=1001.0)]
        )
    assert "sessions open now: editor (1)" in riglm("enforce")[1]


def test_a_control_api_that_is_named_and_away_is_an_error_before_anything_changes(place, riglm):
    (place / "riglm.yaml").write_text(FILE)
    code, _, told = riglm("enforce", "--url", f"http://127.0.0.1:{free_port()}")
    assert code == 1
    assert "no riglm answers" in told
    assert (place / "riglm.yaml").read_text() == FILE
