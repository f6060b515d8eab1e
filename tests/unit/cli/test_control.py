import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from riglm.adapters.control.tokens import FILE_NAME, TokenFile, digest
from riglm.cli.main import app


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TokenFile:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIGLM_DATA_DIR", str(tmp_path / "data"))
    return TokenFile(tmp_path / "data" / FILE_NAME)


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["control", "token", *words])


def test_tokens_are_shown_once_and_only_their_hashes_are_kept_for_their_owner(file: TokenFile):
    shown = json.loads(run("--json").stdout)
    assert file.read() == {scope: digest(shown[scope].encode()) for scope in ("write", "read")}
    assert not any(token in file.path.read_text() for token in shown.values())
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    assert [each.name for each in file.path.parent.iterdir()] == [FILE_NAME]
    again = run()
    assert again.exit_code == 1
    assert "--new" in str(again.exception)


def test_new_tokens_replace_the_old_ones_and_a_file_that_cannot_be_read(file: TokenFile):
    first = dict(line.split() for line in run().stdout.splitlines())
    assert json.loads(run("--json", "--new").stdout).keys() == first.keys()
    file.path.write_text("damaged")
    assert "--new" in str(run().exception)
    second = json.loads(run("--json", "--new").stdout)
    assert (file.read() or {})["read"] == digest(second["read"].encode())
    assert len({*first.values(), *second.values()}) == 4


def test_a_configured_token_that_counts_instead_is_reported(file: TokenFile, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RIGLM_CONTROL__TOKEN", "3f9c0d5be1a7482c")
    assert "control.token is set" in run().stderr


def test_a_directory_that_cannot_be_written_is_named_with_the_fix(file: TokenFile):
    file.path.parent.write_text("a file is in the way")
    result = run("--new")
    assert result.exit_code != 0
    assert "RIGLM_DATA_DIR" in str(result.exception)
