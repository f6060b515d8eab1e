"""Ports as plug-ins see them."""

import importlib
import inspect
import pkgutil
from typing import Protocol

import pytest

import riglm.ports

PORTS = {
    name: port
    for module in pkgutil.walk_packages(riglm.ports.__path__, "riglm.ports.")
    for name, port in inspect.getmembers(importlib.import_module(module.name), inspect.isclass)
    if name.endswith("Port") and port.__module__ == module.name
}


@pytest.mark.parametrize("port", PORTS.values(), ids=PORTS.keys())
def test_an_object_can_be_checked_against_a_port(port: type) -> None:
    assert not isinstance(object(), port)
    names = {*dir(port), *inspect.get_annotations(port)} - {*dir(Protocol)} - {*dir(object())}
    members = dict.fromkeys(names, lambda _: None)
    assert isinstance(type("Plugged", (), members)(), port)
