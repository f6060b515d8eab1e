import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from riglm.adapters.control.tokens import FILE_NAME, TokenFile, digest, make
from riglm.cli.main import app


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TokenFile:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIGLM_DATA_DIR", str(tmp_path / "data"))
    return TokenFile(tmp_path / "data" / FILE_NAME)


def told(*words: str) -> Result:
    return CliRunner().invoke(app, ["control", "token", *words])


def test_tokens_are_shown_once_and_only_their_hashes_are_kept(file: TokenFile):
    shown = json.loads(told("--json").stdout)
    assert set(shown) == {"write", "read"}
    made = file.read()
    assert made is not None
    for scope, token in made.items():
        assert token.plain is None
        assert token.digest == digest(shown[scope].encode())
        assert shown[scope] not in file.path.read_text()
    again = told()
    assert again.exit_code == 1
    assert "--new" in str(again.exception)


def test_tokens_that_a_start_made_are_the_ones_that_are_shown(file: TokenFile):
    file.write(make(), replace=False)
    made = file.read()
    assert made is not None
    output = told().stdout
    assert output.split() == ["write", made["write"].plain, "read", made["read"].plain]
    file.write(make(), replace=False)
    assert file.read() == {scope: type(token)(token.digest) for scope, token in made.items()}


def test_new_tokens_take_the_place_of_the_old_ones_and_of_what_cannot_be_read(file: TokenFile):
    first = json.loads(told("--json").stdout)
    assert json.loads(told("--json", "--new").stdout).keys() == first.keys()
    file.path.write_text("damaged")
    assert "--new" in str(told().exception)
    second = json.loads(told("--json", "--new").stdout)
    made = file.read()
    assert made is not None
    assert made["read"].digest == digest(second["read"].encode())
    assert len({*first.values(), *second.values()}) == 4


def test_nobody_else_can_read_the_file_at_any_time(file: TokenFile):
    file.write(make(), replace=False)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    file.path.chmod(0o644)
    file.write(make())
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert [each.name for each in file.path.parent.iterdir()] == [FILE_NAME]


def test_whoever_set_a_token_is_told_that_it_counts_instead(file: TokenFile, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RIGLM_CONTROL__TOKEN", "3f9c0d5be1a7482c")
    assert "control.token is set" in told().stderr


def test_a_directory_that_cannot_be_written_is_named_with_the_fix(file: TokenFile):
    file.path.parent.write_text("a file is in the way")
    result = told("--new")
    assert result.exit_code != 0
    assert "RIGLM_DATA_DIR" in str(result.exception)
