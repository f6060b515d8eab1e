"""What `riglm run` and `riglm serve` do before they serve: settings read, servers looked for."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from riglm.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from riglm.adapters.configuration.loading import Configuration

_SWITCH = "PYDANTIC_DISABLE_PLUGINS"


def ready(**options: Any) -> "Configuration":
    """The configuration for these `Options`, with at least one server that is there.

    Raises:
        ConfigurationError: the configuration cannot be used, or names no server, or none whose program is there, or a
            predictor or an embedder that is not.
    """
    with _without_plugins():
        from riglm.adapters.configuration.loading import Options, load
        from riglm.adapters.configuration.presence import (
            require_all,
            require_embedder,
            require_predictor,
            require_upstreams,
        )

        configuration = load(Options(**options))
    require_all(
        lambda: require_upstreams(configuration, every=False),
        lambda: require_predictor(configuration, _predictors),
        lambda: require_embedder(configuration, _embedders),
    )
    return configuration


def common_values(
    no_filter: bool, log_level: str | None, url: str | None = None, headers: Sequence[str] = ()
) -> list[tuple[str, tuple[str, ...], Any]]:
    """Return the settings that both commands have options for.

    Raises:
        ConfigurationError: a header is not written as `NAME: VALUE`, or there is no URL to send it to.
    """
    values: list[tuple[str, tuple[str, ...], Any]] = [
        ("--no-filter", ("filtering", "enabled"), False if no_filter else None),
        ("--log-level", ("logging", "level"), log_level),
    ]
    if headers and url is None:
        raise ConfigurationError("--header: there is no URL to send it to — fix: give --url as well")
    for header in headers:
        name, colon, value = header.partition(":")
        if not colon:
            raise ConfigurationError("--header: a header has a name and a value — fix: write --header 'NAME: VALUE'")
        values.append(("--header", ("upstream", "headers", name.strip()), value.strip()))
    return values


def _predictors() -> tuple[str, ...]:
    from riglm.adapters.prediction.selection import available

    return available()


def _embedders() -> tuple[str, ...]:
    from riglm.adapters.embedding.factory import available

    return available()


@contextmanager
def _without_plugins() -> Iterator[None]:
    """Keep pydantic from looking for plugins in all that is installed, which takes a tenth of the start."""
    if _SWITCH in os.environ:
        yield
        return
    os.environ[_SWITCH] = "1"
    try:
        yield
    finally:
        del os.environ[_SWITCH]  # the servers' environment is not ours to change
