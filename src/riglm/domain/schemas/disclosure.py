"""The configuration as a document without its secrets."""

from collections.abc import Iterator
from typing import Any

from pydantic import SecretStr

from riglm.domain.redaction import MASK, Redactor, mask_address, mask_command, mask_options, mask_url
from riglm.domain.schemas.settings import Settings
from riglm.domain.schemas.shape import IndexedKeyPath, holds_text


def disclose(settings: Settings) -> dict[str, Any]:
    """The settings as one document, in the order of the schema; of a server only what is set."""
    written = settings.model_dump(mode="json", by_alias=True)
    values: dict[str, Any] = _mask_secrets(settings.model_dump(by_alias=True), written)
    for section, url in (("storage", settings.storage.url), ("state", settings.state.url)):
        values[section]["url"] = None if url is None else mask_url(url.get_secret_value())
    for section in ("predictor", "embedder"):
        values[section]["options"] = mask_options(values[section]["options"])
    values["mcpServers"] = {name: _mask_server(given) for name, given in values["mcpServers"].items()}
    upstream = values.pop("upstream")
    whole = values if upstream is None else {"upstream": _mask_server(upstream), **values}
    return whole if not settings.from_variables else _mask_texts(whole, settings.from_variables)


def list_leaves(value: Any, path: IndexedKeyPath = ()) -> Iterator[tuple[IndexedKeyPath, Any]]:
    """Each value of a document that is no object, and its path."""
    if not isinstance(value, dict):
        yield path, value
        return
    for key, item in value.items():
        yield from list_leaves(item, (*path, key))


def _mask_secrets(value: Any, written: Any) -> Any:
    """The written form of a value, with a mask for each secret in it."""
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, dict):
        pairs = zip(value.values(), written.items(), strict=True)
        return {key: _mask_secrets(item, inner) for item, (key, inner) in pairs}
    return written


def _mask_texts(document: dict[str, Any], secrets: tuple[str, ...]) -> dict[str, Any]:
    """Return a document with all these texts masked, short ones only where they are a whole value."""
    redact = Redactor(secrets)

    def mask(value: Any, path: IndexedKeyPath) -> Any:
        if isinstance(value, dict):
            return {key: mask(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [mask(item, (*path, place)) for place, item in enumerate(value)]
        if not isinstance(value, str) or not holds_text(path):
            return value
        return MASK if value in secrets else redact(value)

    return {key: mask(value, (key,)) for key, value in document.items()}


def _mask_server(given: dict[str, Any]) -> dict[str, Any]:
    words = mask_command([*given["command"], *given["args"]])
    length = len(given["command"])
    values = {**given, "command": words[:length], "args": words[length:], "url": mask_address(given["url"])}
    return {key: value for key, value in values.items() if value not in (None, "", [], {})}
