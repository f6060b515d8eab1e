"""Changes merged into a configuration, and where two configurations differ.

A change is a document in the manner of JSON Merge Patch (RFC 7396): sections and maps are merged, all else is replaced,
and null means the default.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from pydantic import SecretStr, ValidationError

from riglm.adapters.configuration.loading import Configuration
from riglm.adapters.configuration.problem import IndexedKeyPath, dotted, holds_text, setter_of
from riglm.domain.control import FieldError, InvalidInputError
from riglm.domain.redaction import MASK, Redactor, mask_address, mask_command, mask_options, mask_url, sounds_secret
from riglm.domain.schemas.settings import LEFT_OUT, Settings

_NOTHING: tuple[object, ...] = (None, "", [], {})


def disclosed_document(settings: Settings) -> dict[str, Any]:
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
        for path, value in _leaves(disclosed_document(configuration.settings), ())
    ]


def _covered(value: Any, written: Any) -> Any:
    """The written form of a value, with a mask for each secret in it."""
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, dict):
        pairs = zip(value.values(), written.items(), strict=True)
        return {key: _covered(item, inner) for item, (key, inner) in pairs}
    return written


def _without(secrets: tuple[str, ...], disclosed_document: dict[str, Any]) -> dict[str, Any]:
    """Return a document with all these texts masked, short ones only where they are a whole value."""
    redact = Redactor(secrets)

    def covered(value: Any, path: IndexedKeyPath) -> Any:
        if isinstance(value, dict):
            return {key: covered(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [covered(item, (*path, place)) for place, item in enumerate(value)]
        if not isinstance(value, str) or not holds_text(path):
            return value
        return MASK if value in secrets else redact(value)

    return {key: covered(value, (key,)) for key, value in disclosed_document.items()}


def _server(given: dict[str, Any]) -> dict[str, Any]:
    words = mask_command([*given["command"], *given["args"]])
    length = len(given["command"])
    values = {**given, "command": words[:length], "args": words[length:], "url": mask_address(given["url"])}
    return {key: value for key, value in values.items() if value not in _NOTHING}


def _leaves(value: Any, path: IndexedKeyPath) -> Iterator[tuple[IndexedKeyPath, Any]]:
    if not isinstance(value, dict):
        yield path, value
        return
    for key, item in value.items():
        yield from _leaves(item, (*path, key))


SettingPath = tuple[str, ...]

MAX_FAULTS: Final = 100
"""Maximum number of wrong places in a message."""

_DEEPEST: Final = 32
_MISSING: Final = object()
_SERVERS: Final = frozenset({"upstream", "mcpServers"})
_SECRET_KEYS: Final = frozenset({"token", "read_token", "key", "url"})


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One value to change; None means the default."""

    path: SettingPath
    value: Any


def changes_in(
    document: Mapping[str, Any],
    settings: Settings,
    concerns: Callable[[SettingPath], bool] = lambda _: True,
    *,
    in_force: Settings | None = None,
) -> list[ConfigChange]:
    """What of a document differs from what is shown of the settings, at the paths that are of concern.

    A masked value of the settings `in_force` keeps theirs.

    Raises:
        Invalid: it is nested too deeply, holds no text where a text is, or gives the mask of a secret for a value.
    """
    _require_bottom(document)
    shown = disclosed_document(settings)
    found = [change for change in _changes(document, shown, ()) if concerns(change.path)]
    if in_force is not None:
        found = _unmasked(found, in_force)
    faults = list(islice(filter(None, (_fault(change, shown) for change in found)), MAX_FAULTS))
    if faults:
        raise InvalidInputError(*faults)
    return found


def merged(settings: Settings, changes: Sequence[ConfigChange], default_store: str) -> Settings:
    """The settings with changes made to them; `default_store` is the file that is used when no store is named.

    Raises:
        Invalid: the whole is not valid; every place is named.
    """
    if not changes:
        return settings
    values = settings.model_dump(by_alias=True, exclude_unset=True)
    if values.get("storage", {}).get("path") == default_store:
        del values["storage"]["path"]
    for change in changes:
        put(values, change.path, change.value)
    try:
        wanted = _with_a_store(values, default_store)
        return Settings.model_validate(wanted, context={LEFT_OUT: settings.left_out}).aware_of(settings.from_variables)
    except ValidationError as error:
        from riglm.adapters.configuration.problem import problems_in

        problems = dict.fromkeys(problems_in(error, {}, "", most=MAX_FAULTS))
        faults = [FieldError(path=each.path, detail=f"{each.what} — fix: {each.fix}") for each in problems]
        raise InvalidInputError(*faults, *_left_out(error.error_count())) from None


def differences(before: Settings, after: Settings) -> list[SettingPath]:
    """The places where two configurations have different values, in the order of the schema."""
    return differing(before.model_dump(by_alias=True), after.model_dump(by_alias=True))


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[SettingPath]:
    """The places where two nested mappings have different values."""
    return list(_differences(before, after, ()))


def value_at(settings: Settings, path: SettingPath) -> Any:
    """The value that was set at a path, with its secrets in the clear; None where nothing was set."""
    return _plain(found_at(settings.model_dump(by_alias=True, exclude_unset=True), path))


def found_at(values: Any, path: SettingPath) -> Any:
    """What nested mappings hold at a path; None where they hold nothing."""
    for key in path:
        values = values.get(key) if isinstance(values, Mapping) else None
    return values


def put(values: dict[str, Any], path: SettingPath, value: Any) -> None:
    """Set a value at a path of nested mappings; None removes it."""
    here = values
    for key in path[:-1]:
        inner = here.get(key)
        if not isinstance(inner, dict):
            if value is None:
                return
            inner = here[key] = {}
        here = inner
    if value is None:
        here.pop(path[-1], None)
    else:
        here[path[-1]] = value


def _unmasked(changes: Sequence[ConfigChange], in_force: Settings) -> list[ConfigChange]:
    shown = disclosed_document(in_force)
    return [
        ConfigChange(change.path, value_at(in_force, change.path))
        if _holds_mask(change.value) and _are_alike(change.value, found_at(shown, change.path))
        else change
        for change in changes
    ]


def _left_out(count: int) -> list[FieldError]:
    more = count - MAX_FAULTS
    return [FieldError(path="", detail=f"{more} more places are wrong — fix: mend these first")] if more > 0 else []


def _changes(given: Mapping[str, Any], shown: Mapping[str, Any], path: SettingPath) -> Iterator[ConfigChange]:
    for key, value in given.items():
        here = shown.get(key, _MISSING)
        if _are_alike(value, here) or (value is None and here is _MISSING):
            continue
        if isinstance(value, Mapping) and (value or isinstance(here, Mapping)):
            yield from _changes(value, here if isinstance(here, Mapping) else {}, (*path, key))
        else:
            yield ConfigChange((*path, key), value)


def _with_a_store(values: dict[str, Any], default_store: str) -> dict[str, Any]:
    storage = values.get("storage", {})
    if not isinstance(storage, dict) or storage.get("path") is not None or storage.get("url") is not None:
        return values
    return {**values, "storage": {**storage, "path": default_store}}


def _differences(before: Any, after: Any, path: SettingPath) -> Iterator[SettingPath]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            yield from _differences(before.get(key, _MISSING), after.get(key, _MISSING), (*path, key))
    elif not _are_alike(before, after):
        yield path


def _are_alike(one: Any, other: Any) -> bool:
    """Whether two values are the same in a configuration: 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_are_alike(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_are_alike, one, other))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _may_be_secret(path: SettingPath) -> bool:
    return path[0] in _SERVERS or path[-1] in _SECRET_KEYS or any(map(sounds_secret, path))


def _require_bottom(document: Mapping[str, Any]) -> None:
    level: list[Any] = [document]
    for _ in range(_DEEPEST):
        level = [
            inner
            for value in level
            if isinstance(value, Mapping | list | tuple)
            for inner in (value.values() if isinstance(value, Mapping) else value)
        ]
    if level:
        raise InvalidInputError(FieldError(path="", detail="the values are nested too deeply — fix: flatten them"))


def _fault(change: ConfigChange, shown: Mapping[str, Any]) -> FieldError | None:
    if not _is_text(change):
        path = ascii(dotted(change.path))[1:-1]
        return FieldError(path=path, detail="this text holds half a character — fix: give it as UTF-8")
    if _holds_mask(change.value) and (_may_be_secret(change.path) or _holds_mask(found_at(shown, change.path))):
        detail = f"this holds a mask — fix: give the value itself, or leave it {MASK}"
        return FieldError(path=dotted(change.path), detail=detail)
    return None


def _is_text(change: ConfigChange) -> bool:
    """Whether all texts can be written: JSON can name halves of characters."""
    try:
        json.dumps([change.path, change.value], ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return False
    return True


def _holds_mask(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_mask, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_mask, value))
    return isinstance(value, str) and MASK in value
