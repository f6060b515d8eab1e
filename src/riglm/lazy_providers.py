"""Providers of dependency-injector that import the parts of riglm when they are first needed."""

import importlib
import operator
import sys
from collections.abc import Callable
from typing import Any, Final

from riglm.domain.errors import ConfigurationError


class _WithoutFrameworks:
    """Hides the libraries that dependency-injector imports where they are installed: 0.3 s of each start."""

    hidden: Final = frozenset({"fast_depends", "fastapi", "pydantic_settings", "starlette", "werkzeug", "yaml"})

    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] in self.hidden:
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, _WithoutFrameworks())
try:
    from dependency_injector.containers import DeclarativeContainer as _Container  # noqa: F401  # that imports them
    from dependency_injector.providers import Callable as Call
    from dependency_injector.providers import Object, Provider, Selector
finally:
    del sys.meta_path[0]


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


def missing(what: str, extra: str) -> str:
    """Return the message where a library is not installed that comes with an extra of riglm."""
    return f"{what} is not installed — fix: pip install 'riglm[{extra}]'"


def when(condition: Provider[Any], part: Provider[Any]) -> Selector:
    """Return a provider of the part where the condition holds, else of None."""
    return Selector(Call(lambda value: "yes" if value else "no", condition), yes=part, no=Object(None))
