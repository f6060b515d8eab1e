"""The configuration as it may be shown: every value and its origin, secrets covered."""

from collections.abc import Iterator
from typing import Any

from riglm.adapters.configuration.loading import Configuration
from riglm.adapters.configuration.problem import KeyPath, dotted, setter_of
from riglm.domain.secret import MASK, mask_command, mask_url

_SECRET_MAPS = frozenset({"env", "headers"})
_SECRET_KEYS = frozenset({"token", "read_token", "key"})
_NOTHING: tuple[object, ...] = (None, "", [], {})


def shown(configuration: Configuration) -> list[tuple[str, Any, str]]:
    """Each setting's path, value and origin, in the order of the schema; of a server only what is set."""
    values = configuration.settings.model_dump(mode="json", by_alias=True)
    for section, url in (("storage", configuration.settings.storage.url), ("state", configuration.settings.state.url)):
        values[section]["url"] = None if url is None else mask_url(url.get_secret_value())
    return [
        (dotted(path), value, setter_of(path, configuration.origins) or "default")
        for path, value in _leaves(values, ())
        if not (path[0] in {"upstream", "mcpServers"} and value in _NOTHING)
    ]


def _leaves(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if not isinstance(value, dict):
        yield path, value
        return
    if "command" in value:
        value = _covered(value)
    for key, item in value.items():
        if (path and path[-1] in _SECRET_MAPS) or key in _SECRET_KEYS:
            yield (*path, key), MASK if item is not None else None
        else:
            yield from _leaves(item, (*path, key))


def _covered(server: dict[str, Any]) -> dict[str, Any]:
    words = mask_command([*server["command"], *server["args"]])
    length = len(server["command"])
    return {**server, "command": words[:length], "args": words[length:], "url": mask_url(server["url"])}
