from pathlib import Path

import pytest

from riglm.adapters.control.tokens import FILE_NAME, TokenFile, create_tokens, load_tokens
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.downstream import ControlSettings

TOKEN = "3f9c0d5be1a7482c"


def test_on_loopback_no_token_is_needed_or_created(tmp_path: Path):
    assert not load_tokens(ControlSettings(), tmp_path).required
    assert not list(tmp_path.iterdir())


def test_a_public_address_without_any_token_is_refused_with_the_fix(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="riglm control token"):
        load_tokens(ControlSettings(host="0.0.0.0"), tmp_path)
    TokenFile(tmp_path / FILE_NAME).write(create_tokens())
    assert load_tokens(ControlSettings(host="0.0.0.0"), tmp_path).required


@pytest.mark.parametrize("control", [{"token": TOKEN}, {"read_token": TOKEN}])
def test_a_public_address_with_a_configured_token_is_served(tmp_path: Path, control: dict[str, str]):
    tokens = load_tokens(ControlSettings.model_validate({"host": "0.0.0.0", **control}), tmp_path)
    assert tokens.required
    assert tokens.right(TOKEN.encode())
    assert tokens.right(b"") is None
