from pathlib import Path

import pytest

from riglm.adapters.control.tokens import FILE_NAME, Right, TokenFile, guarded, make
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.downstream import ControlSettings

TOKEN = "3f9c0d5be1a7482c"


def test_the_first_start_on_loopback_makes_tokens_and_needs_none(tmp_path: Path):
    tokens = guarded(ControlSettings(), tmp_path / "data")
    made = TokenFile(tmp_path / "data" / FILE_NAME).read()
    assert made is not None
    assert not tokens.required
    assert tokens.right((made["read"].plain or "").encode()) is Right.READ
    assert tokens.right((made["write"].plain or "").encode()) is Right.WRITE


def test_the_second_start_leaves_the_tokens_alone(tmp_path: Path):
    guarded(ControlSettings(), tmp_path)
    before = (tmp_path / FILE_NAME).read_bytes()
    guarded(ControlSettings(), tmp_path)
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_a_public_address_without_any_token_is_refused_with_the_fix(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="riglm control token"):
        guarded(ControlSettings(host="0.0.0.0"), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("control", [{"token": TOKEN}, {"read_token": TOKEN}])
def test_a_public_address_with_a_configured_token_is_served(tmp_path: Path, control: dict[str, str]):
    assert guarded(ControlSettings.model_validate({"host": "0.0.0.0", **control}), tmp_path).required


def test_on_loopback_a_directory_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "data").write_text("a file")
    assert not guarded(ControlSettings(), tmp_path / "data").required
    assert "goes on without tokens" in caplog.text


def test_a_file_that_others_could_use_is_closed_to_them_with_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    file = TokenFile(tmp_path / FILE_NAME)
    file.write(make())
    assert file.read()
    assert not caplog.records
    file.path.chmod(0o644)
    assert file.read()
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert "riglm control token --new" in caplog.text
