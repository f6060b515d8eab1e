"""dependency-injector without what it would load on the side.

On import it looks for frameworks that it can work with, and loads those that are installed: pydantic-settings and
Starlette come with the `mcp` package, cost a fifth of a second and 7 MiB, and serve nothing here.
"""

import contextlib
import sys
from collections.abc import Iterator

_NOT_NEEDED = ("fastapi", "flask", "pydantic_settings", "starlette", "werkzeug", "yaml")


@contextlib.contextmanager
def _hidden(*names: str) -> Iterator[None]:
    """Let imports of these modules fail meanwhile, unless they are loaded already."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None makes an import fail
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


with _hidden(*_NOT_NEEDED):
    from dependency_injector import containers, providers

__all__ = ["containers", "providers"]
