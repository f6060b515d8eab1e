"""The configuration as it may be shown: every value and its origin, secrets covered."""

from collections.abc import Iterator
from typing import Any

from pydantic import SecretStr

from riglm.adapters.configuration.loading import Configuration
from riglm.adapters.configuration.problem import KeyPath, dotted, setter_of
from riglm.adapters.configuration.shape import holds_text
from riglm.domain.command_line import mask_command
from riglm.domain.schemas.settings import Settings
from riglm.domain.secret import MASK, Redactor, mask_address, mask_options, mask_url

_NOTHING: tuple[object, ...] = (None, "", [], {})


def document(settings: Settings) -> dict[str, Any]:
    """The settings as one document, in the order of the schema; of a server only what is set."""
    written = settings.model_dump(mode="json", by_alias=True)
    values: dict[str, Any] = _covered(settings.model_dump(by_alias=True), written)
    for section, url in (("storage", settings.storage.url), ("state", settings.state.url)):
        values[section]["url"] = None if url is None else mask_url(url.get_secret_value())
    for section in ("predictor", "embedder"):
        values[section]["options"] = mask_options(values[section]["options"])
    values["mcpServers"] = {name: _server(given) for name, given in values["mcpServers"].items()}
    upstream = values.pop("upstream")
    whole = values if upstream is None else {"upstream": _server(upstream), **values}
    return whole if not settings.from_variables else _without(settings.from_variables, whole)


def shown(configuration: Configuration) -> list[tuple[str, Any, str]]:
    """Each setting's path, value and origin, in the order of the schema; of a server only what is set."""
    return [
        (dotted(path), value, setter_of(path, configuration.origins) or "default")
        for path, value in _leaves(document(configuration.settings), ())
    ]


def _covered(value: Any, written: Any) -> Any:
    """The written form of a value, with a mask for each secret in it."""
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, dict):
        pairs = zip(value.values(), written.items(), strict=True)
        return {key: _covered(item, inner) for item, (key, inner) in pairs}
    return written


def _without(secrets: tuple[str, ...], document: dict[str, Any]) -> dict[str, Any]:
    """Return a document with all these texts masked, short ones only where they are a whole value."""
    redact = Redactor(secrets)

    def covered(value: Any, path: KeyPath) -> Any:
        if isinstance(value, dict):
            return {key: covered(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [covered(item, (*path, place)) for place, item in enumerate(value)]
        if not isinstance(value, str) or not holds_text(path):
            return value
        return MASK if value in secrets else redact(value)

    return {key: covered(value, (key,)) for key, value in document.items()}


def _server(given: dict[str, Any]) -> dict[str, Any]:
    words = mask_command([*given["command"], *given["args"]])
    length = len(given["command"])
    values = {**given, "command": words[:length], "args": words[length:], "url": mask_address(given["url"])}
    return {key: value for key, value in values.items() if value not in _NOTHING}


def _leaves(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if not isinstance(value, dict):
        yield path, value
        return
    for key, item in value.items():
        yield from _leaves(item, (*path, key))
