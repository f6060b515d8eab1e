"""A predictor is chosen by name, and what is wrong with it is said."""

import importlib.metadata
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.section import OWN_KINDS
from riglm.ports import predictor
from riglm.ports.predictor import PREDICTORS


class NoPredictor:
    def learn(self) -> None: ...


class Picky:
    def __init__(self, depth: int = 1) -> None:
        raise ValueError("depth must be deep")

    def learn(self) -> None: ...

    def predict(self) -> None: ...


@pytest.fixture
def strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages of other people, beside ours."""
    here = f"{__name__}:"
    ours = importlib.metadata.entry_points(group=PREDICTORS.group)
    theirs = [
        EntryPoint("half", here + "NoPredictor", PREDICTORS.group),
        EntryPoint("picky", here + "Picky", PREDICTORS.group),
        EntryPoint("missing", here + "Nothing", PREDICTORS.group),
        EntryPoint("absent", "no.such.module:Thing", PREDICTORS.group),
        EntryPoint("number", here + "NUMBER", PREDICTORS.group),
    ]
    monkeypatch.setattr(predictor, "entry_points", lambda **_: EntryPoints([*ours, *theirs]))


NUMBER = 42


def test_the_kinds_that_come_with_riglm_are_the_ones_that_it_registers():
    points = importlib.metadata.entry_points(group=PREDICTORS.group)
    ours = {point.name for point in points if point.value.startswith("riglm.adapters.prediction.")}
    assert ours == set(OWN_KINDS)


def test_options_reach_the_constructor():
    assert PREDICTORS.make("hybrid", {"without": ["words"]})


def test_an_unknown_kind_is_told_what_there_is():
    with pytest.raises(
        ConfigurationError, match=r"predictor\.kind: unknown predictor 'crystal' — fix: one of .*hybrid"
    ):
        PREDICTORS.make("crystal")


def test_unknown_options_are_named():
    with pytest.raises(ConfigurationError, match=r"predictor\.options: 'server' does not take \{'depth': 3\}"):
        PREDICTORS.make("server", {"depth": 3})


@pytest.mark.usefixtures("strangers")
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("half", "is no predictor: it has no predict"),
        ("picky", "depth must be deep"),
        ("missing", "cannot be loaded"),
        ("absent", "cannot be loaded"),
        ("number", "is no class"),
    ],
)
def test_what_is_wrong_with_a_strangers_predictor_is_said(kind: str, said: str):
    with pytest.raises(ConfigurationError, match=said) as caught:
        PREDICTORS.make(kind)
    assert kind in str(caught.value)
