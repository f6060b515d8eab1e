import pytest
from pydantic import ValidationError

from riglm.domain.schemas.settings import Settings

_TOKEN = "3f9c0d5be1a7482c"
_OTHER = "77aa01c4e9d24b6f"


def test_control_is_off_and_needs_nothing():
    assert not Settings().control.enabled


@pytest.mark.parametrize(
    ("control", "place", "words"),
    [
        ({"token": "short"}, ("control", "token"), "too short"),
        ({"read_token": "with spaces in between"}, ("control", "read_token"), "spaces"),
        ({"token": _TOKEN, "read_token": _TOKEN}, ("control",), "the same"),
        ({"host": "0.0.0.0", "token": "change-me-change-me"}, ("control",), "easy to guess"),
        ({"host": "0.0.0.0", "token": _TOKEN, "read_token": "your-token-here-"}, ("control",), "easy to guess"),
        ({"port": 70_000}, ("control", "port"), "65535"),
    ],
)
def test_a_control_that_would_be_badly_guarded_is_refused_with_its_place(control, place, words):
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({"control": control})
    (error,) = caught.value.errors()
    assert error["loc"] == place
    assert words in error["msg"]


def test_a_public_address_without_tokens_of_its_own_is_left_to_the_start_which_knows_those_that_were_made():
    assert Settings.model_validate({"control": {"host": "0.0.0.0"}}).control.host == "0.0.0.0"


def test_both_tokens_are_secrets():
    settings = Settings.model_validate({"control": {"token": _TOKEN, "read_token": _OTHER}})
    assert {_TOKEN, _OTHER} <= set(settings.secrets())
    assert _TOKEN not in repr(settings)
