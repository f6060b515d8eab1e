"""`riglm undo` where something else happened since `riglm init`."""

import json
import os
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from riglm.cli.setup_access import installations
from tests.preloaded import riglm_command
from tests.unit.application.setup.shapes import CODEX, CURSOR
from tests.unit.cli.test_init import app, done, home, put, read, runner, servers_in

__all__ = ["home"]


def behind(home: Path, name: str) -> Any:
    """The servers in a configuration of riglm's."""
    return yaml.safe_load((home / ".config/riglm" / name).read_text("utf-8"))["mcpServers"]


def test_a_project_that_was_deleted_stays_deleted_and_its_servers_are_kept_where_it_says(home: Path) -> None:
    project = home / "work" / "app"
    project.mkdir()
    (project / ".mcp.json").write_text('{"mcpServers": {"db": {"command": "sh", "env": {"K": "k9"}}}}', "utf-8")
    done("init", "--project", str(project))
    shutil.rmtree(project)
    output = done("undo").output
    assert not project.exists()
    assert f"{project}/.mcp.json was deleted with its folder, and is not restored" in output
    (kept,) = (home / ".config/riglm").glob("*.undone.yaml")
    assert f"not put back, and kept in {kept}: db" in output
    assert "returns" not in output
    assert behind(home, kept.name) == {"db": {"command": "sh", "env": {"K": "k9"}}}
    assert installations() == ()


def test_a_file_that_was_removed_or_emptied_returns_and_one_without_its_servers_is_left_with_a_word(home: Path) -> None:
    file = put(home, CURSOR)
    for spoil in (Path.unlink, lambda emptied: emptied.write_text("\n", "utf-8")):
        done("init")
        spoil(file)
        done("undo")
        assert file.read_bytes() == CURSOR.content
    done("init")
    file.write_text('{"theme": "dark"}', "utf-8")
    output = done("undo").output
    assert file.read_text("utf-8") == '{"theme": "dark"}'
    assert "riglm is not in" in output
    assert set(behind(home, "cursor.undone.yaml")) == {*CURSOR.goes}
    assert installations() == ()


def test_a_file_that_cannot_be_read_any_more_is_left_and_its_copy_is_named(home: Path) -> None:
    file = put(home, CURSOR)
    done("init")
    file.write_text("{", "utf-8")
    result = runner.invoke(app, ["undo", "--yes"])
    assert result.exit_code == 1
    (copy,) = (home / ".local/share/riglm/clients").glob("cursor-*.json")
    assert f"what it was before riglm is in {copy}" in result.stderr.replace("\n", "")
    assert copy.read_bytes() == CURSOR.content


def test_an_entry_with_another_name_is_found_by_its_command(home: Path) -> None:
    files = put(home, CURSOR), put(home, CODEX)
    cursor = read(files[0])
    done("init")
    for file in files:
        text = (
            file.read_text("utf-8")
            .replace('"riglm":', '"proxy":')
            .replace("[mcp_servers.riglm]", "[mcp_servers.proxy]")
        )
        file.write_text(text, "utf-8")
    done("undo")
    assert read(files[0]) == cursor
    assert tomllib.loads(files[1].read_text("utf-8")) == tomllib.loads(CODEX.text)


def test_a_server_of_the_users_own_that_took_the_name_stays(home: Path) -> None:
    file = put(home, CURSOR)
    done("init")
    said = read(file)
    said["mcpServers"]["riglm"] = {"command": "sh", "args": ["mine"]}
    file.write_text(json.dumps(said), "utf-8")
    done("undo")
    found = servers_in(file)
    assert found["riglm"] == {"command": "sh", "args": ["mine"]}
    assert set(CURSOR.goes) <= set(found)


@pytest.mark.parametrize("variable", ["XDG_DATA_HOME", "RIGLM_DATA_DIR"])
@pytest.mark.parametrize("is_set_for_init", [True, False])
def test_undo_finds_what_init_did_with_another_data_directory(
    home: Path, monkeypatch: pytest.MonkeyPatch, variable: str, is_set_for_init: bool
) -> None:
    file, elsewhere = put(home, CURSOR), str(home / "elsewhere")
    with monkeypatch.context() as patched:
        if is_set_for_init:
            patched.setenv(variable, elsewhere)
        done("init")
    if not is_set_for_init:
        monkeypatch.setenv(variable, elsewhere)
    done("undo")
    assert file.read_bytes() == CURSOR.content
    assert [each for each in home.rglob("*") if each.is_file()] == [file]


def test_a_record_that_a_project_brings_along_is_not_believed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = home / "work" / ".mcp.json"
    file.write_text('{"mcpServers": {"db": {"command": "sh"}}}', "utf-8")
    with monkeypatch.context() as patched:
        patched.setenv("RIGLM_DATA_DIR", str(home / "work" / "brought"))
        done("init", "--project", ".")
    written = file.read_bytes()
    for words in (["undo"], ["undo", "--project", "."]):
        output = done(*words).output
        assert f"claude-code starts riglm as 'riglm-work' ({file})" in output
        assert "brought" not in output
    assert file.read_bytes() == written


def test_undo_of_what_was_not_set_up_names_what_was(home: Path) -> None:
    file = put(home, CURSOR)
    done("init")
    written = file.read_bytes()
    output = done("undo", "--client", "codex").output
    assert f"nothing to take back of what you named; `riglm init` set up cursor ({file})" in output
    assert file.read_bytes() == written


def test_undo_without_a_record_tells_where_it_looked_and_who_starts_riglm(home: Path) -> None:
    put(home, CURSOR)
    done("init")
    shutil.rmtree(home / ".local/share/riglm/clients")
    output = done("undo").output
    assert f"nothing to take back: no record of `riglm init` in {home}/.local/share/riglm/clients" in output
    assert "cursor starts riglm as 'riglm'" in output
    assert "XDG_DATA_HOME" in output


def test_a_reader_that_goes_away_stops_nothing_that_was_said_yes_to(home: Path) -> None:
    files = put(home, CURSOR), put(home, CODEX)

    def run_without_a_reader(command: str) -> None:
        reading, writing = os.pipe()
        os.close(reading)
        subprocess.run(riglm_command(command, "--yes"), stdout=writing, check=False, timeout=60)
        os.close(writing)

    run_without_a_reader("init")
    assert [("riglm" in servers_in(file)) for file in files] == [True, True]
    run_without_a_reader("undo")
    assert [file.read_bytes() for file in files] == [CURSOR.content, CODEX.content]
    assert installations() == ()
