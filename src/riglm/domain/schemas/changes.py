"""Settings without their secrets, and changes of them at run time: how these are found, stored and merged.

A change is a document in the manner of JSON Merge Patch (RFC 7396): sections and maps are merged, all else is replaced,
and null means the default. It is stored as one JSON value for each `section.key`.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import SecretStr, ValidationError

from riglm.domain.errors import FieldError, InvalidInputError
from riglm.domain.redaction import MASK, Redactor, mask_address, mask_command, mask_options, mask_url
from riglm.domain.schemas.problems import IndexedKeyPath, dotted, holds_text, problems_in
from riglm.domain.schemas.settings import LEFT_OUT, Settings

KeyPath = tuple[str, ...]
"""The location of a value in the configuration: keys from the top."""

CHANGEABLE_KEYS: Final[tuple[KeyPath, ...]] = (
    ("filtering",),
    ("prices",),
    ("predictor",),
    ("learning",),
    ("retention",),
    ("logging",),
    ("privacy", "arguments"),
    ("sessions", "meta_keys"),
    ("sessions", "idle_gap"),
    ("knowledge", "mix"),
    ("knowledge", "top_k"),
    ("knowledge", "floor"),
    ("knowledge", "min_floor"),
    ("knowledge", "max_candidates_per_source"),
)
"""What riglm applies while it runs. All else is needed before the store with the changes is open."""

_DENIALS: Final[frozenset[KeyPath]] = frozenset({("filtering", "allowlist"), ("filtering", "denylist")})

MAX_FAULTS: Final = 100
"""Maximum number of wrong places in a message."""

_MAX_DEPTH: Final = 32
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def is_changeable(path: KeyPath, settings: Settings) -> bool:
    """True if a value may change while riglm runs; processes that share sessions agree on when these end."""
    if path == ("sessions", "idle_gap") and settings.state.kind != "memory":
        return False
    return any(path[: len(key)] == key for key in CHANGEABLE_KEYS)


def find_changes(document: Mapping[str, Any], disclosed: Mapping[str, Any]) -> dict[KeyPath, Any]:
    """Return what a document changes in the settings that are disclosed; a value that is equal, masks included, stays.

    Raises:
        InvalidInputError: it is nested too deeply, or gives a mask or half a character for a value.
    """
    level: list[Any] = [document]
    for _ in range(_MAX_DEPTH):
        level = [inner for value in level for inner in _list_inner(value)]
    if level:
        raise InvalidInputError(FieldError(path="", detail="the values are nested too deeply — fix: flatten them"))
    found = dict(_compare(document, disclosed, ()))
    faults = [fault for path, value in found.items() if (fault := _find_fault(path, value)) is not None]
    if faults:
        raise InvalidInputError(*faults[:MAX_FAULTS])
    return found


def merge_changes(settings: Settings, changes: Mapping[KeyPath, Any]) -> Settings:
    """Return the settings with changes; a value of None restores the default.

    Raises:
        InvalidInputError: the whole is not valid; every place is named.
    """
    if not changes:
        return settings
    values = settings.model_dump(by_alias=True, exclude_unset=True)
    for path, value in changes.items():
        values = _patch_value(values, path, value, is_final=True)
    try:
        changed = Settings.model_validate(values, context={LEFT_OUT: settings.left_out})
    except ValidationError as error:
        problems = dict.fromkeys(problems_in(error, {}, "", most=MAX_FAULTS))
        faults = [FieldError(path=each.path, detail=f"{each.what} — fix: {each.fix}") for each in problems]
        if (more := error.error_count() - MAX_FAULTS) > 0:
            faults.append(FieldError(path="", detail=f"{more} more places are wrong — fix: correct these first"))
        raise InvalidInputError(*faults) from None
    return changed.aware_of(settings.from_variables)


def find_differences(before: Settings, after: Settings) -> list[KeyPath]:
    """The places where two configurations have different values, in the order of the schema."""
    return list(_differ(before.model_dump(by_alias=True), after.model_dump(by_alias=True), ()))


def store_changes(stored: Mapping[str, Any], changes: Mapping[KeyPath, Any]) -> dict[str, Any]:
    """Return stored changes with later ones in them."""
    rows = dict(stored)
    for path, value in changes.items():
        row = ".".join(path[:2])
        rows[row] = _patch_value(rows.get(row), path[2:], value)
    return rows


def read_changes(stored: Mapping[str, Any], settings: Settings, fixed: Collection[KeyPath] = ()) -> dict[KeyPath, Any]:
    """Return stored changes by path, without those that these settings do not take and those at `fixed` paths."""
    found = (change for key in sorted(stored) for change in _list_changes(stored[key], tuple(key.split(".", 1))))
    return {path: value for path, value in found if is_changeable(path, settings) and path not in fixed}


def leave_out(changes: Mapping[KeyPath, Any], faults: Sequence[FieldError]) -> dict[KeyPath, Any]:
    """Return changes without those at, below or above faults: what is valid in one configuration may not be in another.

    Denials stay as long as anything else can be left out, because a tool that is denied must stay so.
    """
    wrong = [tuple(re.split(r"[.\[]", fault.path)) for fault in faults]
    near = {path for path in changes if any(path[: len(each)] == each[: len(path)] for each in wrong)}
    removed = (near - _DENIALS) or (changes.keys() - _DENIALS) or changes.keys()
    return {path: value for path, value in changes.items() if path not in removed}


def _patch_value(old: Any, path: KeyPath, value: Any, *, is_final: bool = False) -> Any:
    """Return nested mappings with another value at a path; those that are final have no key for None."""
    if not path:
        return value
    key, rest = path[0], path[1:]
    inner = dict(old) if isinstance(old, Mapping) else {}
    if is_final and value is None and (not rest or key not in inner):
        inner.pop(key, None)
    else:
        inner[key] = _patch_value(inner.get(key), rest, value, is_final=is_final)
    return inner


def _list_changes(stored: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if not isinstance(stored, dict) or not stored:
        yield path, stored
        return
    for key, value in stored.items():
        yield from _list_changes(value, (*path, key))


def _compare(given: Mapping[str, Any], disclosed: Mapping[str, Any], path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    for key, value in given.items():
        here = disclosed.get(key)
        wanted = dict.fromkeys(here) if value is None and isinstance(here, Mapping) else value
        if isinstance(wanted, Mapping) and isinstance(here, Mapping):
            yield from _compare(wanted, here, (*path, key))
        elif wanted != here or isinstance(wanted, bool) is not isinstance(here, bool):
            yield (*path, key), wanted


def _differ(before: Any, after: Any, path: KeyPath) -> Iterator[KeyPath]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            yield from _differ(before.get(key), after.get(key), (*path, key))
    elif before != after or isinstance(before, bool) is not isinstance(after, bool):
        yield path


def _list_inner(value: Any) -> Collection[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _find_fault(path: KeyPath, value: Any) -> FieldError | None:
    text = json.dumps([path, value], ensure_ascii=False)
    if _SURROGATE.search(text):
        where = ascii(dotted(path))[1:-1]
        return FieldError(path=where, detail="this text holds half a character — fix: give it as UTF-8")
    if MASK in text:
        detail = f"this holds a mask — fix: give the value itself, or leave it {MASK}"
        return FieldError(path=dotted(path), detail=detail)
    return None


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
