import importlib
import pkgutil
from collections.abc import Iterator
from types import FunctionType

import tests.interaction
from tests.interaction.manifest import MANIFEST, behaviour


def _tests() -> Iterator[tuple[str, list[str]]]:
    for module in pkgutil.iter_modules(tests.interaction.__path__):
        if not module.name.startswith("test_"):
            continue
        loaded = importlib.import_module(f"tests.interaction.{module.name}")
        for name, item in vars(loaded).items():
            if name.startswith("test_") and isinstance(item, FunctionType):
                marks = getattr(item, "pytestmark", [])
                yield f"{module.name}::{name}", [mark.args[0] for mark in marks if mark.name == "behaviour"]


@behaviour("manifest.complete")
def test_every_test_names_a_behaviour():
    assert [name for name, named in _tests() if not named] == []


@behaviour("manifest.complete")
def test_every_behaviour_has_a_test():
    tested = {identifier for _, named in _tests() for identifier in named}
    assert [requirement.id for requirement in MANIFEST if requirement.id not in tested] == []


@behaviour("manifest.complete")
def test_no_behaviour_is_listed_twice():
    assert len({requirement.id for requirement in MANIFEST}) == len(MANIFEST)
