"""Providers of dependency-injector that import the parts of riglm when they are first needed."""

import importlib
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, cast

from riglm.domain.errors import ConfigurationError


def _late(module: str, *names: str) -> SimpleNamespace:
    """Return functions of a module that import it when they are called."""

    def create(name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            return getattr(importlib.import_module(module), name)(*args, **options)

        return call

    return SimpleNamespace(**{name: create(name) for name in names})


@contextmanager
def _without_frameworks() -> Iterator[None]:
    """Keep dependency-injector from importing web frameworks and readers of files, which riglm does not use through it.

    That would take 0.3 s of each start. A process that uses riglm as a library gets all of it, and a plug-in that wires
    containers gets it then.
    """
    unused = {
        "configparser": _late("configparser", "ConfigParser"),
        "dependency_injector.wiring": _late("dependency_injector.wiring", "wire", "unwire"),
        "pydantic_settings": None,
        "yaml": None,
    }
    if "riglm.cli.entry" not in sys.modules or "dependency_injector.containers" in sys.modules:
        yield
        return
    before = {name: sys.modules[name] for name in unused if name in sys.modules}
    sys.modules.update(cast("dict[str, ModuleType]", unused))  # the import of None fails
    try:
        yield
    finally:
        for name in unused:
            del sys.modules[name]
        sys.modules.update(before)


with _without_frameworks():
    from dependency_injector.containers import DeclarativeContainer as _Container  # noqa: F401  # that imports them
    from dependency_injector.providers import Callable as Call
    from dependency_injector.providers import Object, Provider, Selector


def lazy(path: str, message: str = "") -> Callable[..., Any]:
    """Return a callable that imports `riglm.<module>:<name>` at its first call; an import string would at once.

    `message` is that of a `ConfigurationError` where a library of the module is not installed.
    """
    module, _, name = path.partition(":")

    def make(*args: Any, **options: Any) -> Any:
        try:
            made = operator.attrgetter(name)(importlib.import_module(f"riglm.{module}"))
        except ModuleNotFoundError as error:
            raise ConfigurationError(message) if message else error from error
        return made(*args, **options)

    return make


def when(condition: Provider[Any], part: Provider[Any]) -> Selector:
    """Return a provider of the part where the condition holds, else of None."""
    return Selector(Call(lambda value: "yes" if value else "no", condition), yes=part, no=Object(None))
