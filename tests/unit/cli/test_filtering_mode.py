"""`riglm enforce` and `riglm shadow`."""

import json
import sys

import pytest

from riglm.cli import main as entrance

FILE = """\
# of the house
upstream: {url: "http://127.0.0.1:9/mcp", auth: {type: bearer, token: "${NOBODY_SET_THIS}"}}

filtering:   # what is shown
    mode: shadow   # look first
    max_tools: 12
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty directory to work in, with a separate home and store."""
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RIGLM_DATA_DIR", str(tmp_path / "data"))
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


def mode(riglm):
    """The mode in force, and where it comes from."""
    found = json.loads(riglm("config", "show", "--json")[1])["filtering.mode"]
    return found["value"], found["source"]


def test_the_mode_is_changed_in_the_store_and_reset(place, riglm, tmp_path, monkeypatch):
    monkeypatch.setenv("NOBODY_SET_THIS", "x")
    (place / "riglm.yaml").write_text(FILE)
    code, out, _ = riglm("enforce")
    assert code == 0
    assert f"{tmp_path / 'data' / 'riglm.db'}: filtering.mode is now enforce (it was shadow)" in out
    assert mode(riglm) == ("enforce", "changed at run time")
    assert "filtering.mode is enforce already" in riglm("enforce")[1]
    assert riglm("shadow")[0] == 0
    assert mode(riglm) == ("shadow", "changed at run time")
    assert riglm("config", "reset", "filtering")[1] == "reset: filtering.mode\n"
    assert mode(riglm) == ("shadow", str(place / "riglm.yaml"))
    assert (place / "riglm.yaml").read_text() == FILE


def test_a_dry_run_changes_nothing(place, riglm, tmp_path):
    (place / "riglm.yaml").write_text(FILE)
    code, out, _ = riglm("enforce", "--dry-run")
    assert code == 0
    assert "filtering.mode would be enforce (it was shadow)" in out
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FILE.replace("mode: shadow", "enabled: false"), "riglm.yaml: filtering.enabled is false"),
        (FILE.replace("mode: shadow", "mode: sometimes"), "filtering.mode"),
        (FILE + "storage: {kind: memory}\n", "storage.kind"),
        ("upstream: [\n", "riglm.yaml"),
    ],
)
def test_where_a_mode_would_have_no_effect_the_reason_is_given(place, riglm, tmp_path, text, said):
    (place / "riglm.yaml").write_text(text)
    code, out, error = riglm("enforce")
    assert (code, out) == (2, "")
    assert said in error
    assert "— fix: " in error
    assert not (tmp_path / "data").exists()


def test_without_a_file_it_says_what_to_name(place, riglm):
    code, _, error = riglm("enforce")
    assert code == 2
    assert "--config" in error
    assert "riglm init" in error


def test_what_init_made_is_switched(place, riglm, tmp_path):
    servers = {"mcpServers": {"notes": {"command": sys.executable, "args": ["-c", "pass"]}}}
    for file in (".cursor/mcp.json", ".gemini/settings.json"):
        (tmp_path / "home" / file).parent.mkdir()
        (tmp_path / "home" / file).write_text(json.dumps(servers))
    assert riglm("init", "--yes", "--client", "cursor", "--client", "gemini")[0] == 0
    [changed] = json.loads(riglm("enforce", "--json")[1])["stores"]
    assert (changed["before"], changed["changed"]) == ("shadow", True)
    assert riglm("undo", "--yes")[0] == 0
    assert json.loads((tmp_path / "home" / ".cursor" / "mcp.json").read_text()) == servers
