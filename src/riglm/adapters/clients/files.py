"""The clients' files on this machine: found, read, and rewritten."""

import contextlib
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import yaml

from riglm.adapters.clients import claude_code, json_members, toml_tables
from riglm.adapters.clients.claude_code import ruled
from riglm.adapters.clients.entries import (
    FORMATS,
    CandidatePath,
    entry_of,
    project_candidates,
    timeouts_of,
    understood,
    user_candidates,
)
from riglm.adapters.clients.json_members import FileNotEditableError
from riglm.domain.client_setup import ClientServer, ConfigLocation
from riglm.ports.clients import ClientsPort

_MAX: Final = 64 * 1024 * 1024
_BOM: Final = "\ufeff"


class ClientFiles(ClientsPort):
    """Clients' files below one home directory."""

    def __init__(
        self, *, environment: Mapping[str, str], home: Path, platform: str = sys.platform, anyway: Collection[str] = ()
    ) -> None:
        """`anyway` names servers to be moved even if they require a sign-in."""
        self._environment = environment
        self._home = home
        self._platform = platform
        self._anyway = frozenset(anyway)

    def places(self, project: Path | None) -> tuple[ConfigLocation, ...]:
        candidates = (
            user_candidates(self._platform, self._environment, self._home)
            if project is None
            else project_candidates(project)
        )
        found = [place for candidate in candidates for place in _present(candidate)]
        own = next(user_candidates(self._platform, self._environment, self._home))
        found += [place for one in _present(own) for place in claude_code.places_in(one, project)]
        return tuple({(place.file.resolve(), place.path): place for place in reversed(found)}.values())[::-1]

    def servers(self, place: ConfigLocation, content: bytes) -> tuple[ClientServer, ...]:
        values = _values(place, _text(place, content))
        found = _with_shared_timeout(_at(values, place.path), values, FORMATS[place.client].shared_timeout)
        servers = [
            understood(place, name, entry, self._home, anyway=name in self._anyway) for name, entry in found.items()
        ]
        blocked = ruled(place, found, [values, *self._said_elsewhere(place)])
        if place.client == "claude-code":
            blocked |= claude_code.blocked(place, servers, self._of_claude_code())
        return tuple(
            ClientServer(name=each.name, obstacle=blocked[each.name], starts=each.starts, url=each.url)
            if each.name in blocked and each.definition is not None
            else each
            for each in servers
        )

    def remarks(self, place: ConfigLocation, names: Collection[str], entry: str) -> tuple[str, ...]:
        if place.client != "claude-code":
            return ()
        return claude_code.remarks(place, names, entry, self._of_claude_code())

    def _of_claude_code(self) -> claude_code.ClaudeCodePaths:
        claude = next(user_candidates(self._platform, self._environment, self._home))
        own_file = claude.base / claude.pattern
        return claude_code.ClaudeCodePaths(own_file, self._home, self._environment, self._platform)

    def _said_elsewhere(self, place: ConfigLocation) -> Iterator[Mapping[str, Any]]:
        """Return the other files that the client merges with this one; empty if one cannot be read."""
        candidates = [*user_candidates(self._platform, self._environment, self._home)]
        candidates += project_candidates(place.project) if place.project is not None else []
        for other in (other for each in candidates if each.client == place.client for other in _present(each)):
            if FORMATS[place.client].has_rules and place.is_read_with(other):
                with contextlib.suppress(OSError, FileNotEditableError):
                    yield _values(other, _text(other, other.file.read_bytes()))

    def with_riglm(
        self,
        place: ConfigLocation,
        content: bytes,
        names: Collection[str],
        *,
        entry: str,
        starts: Sequence[str],
        variables: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        waits: Mapping[str, float] | None = None,
    ) -> bytes:
        text = _text(place, content)
        values = _values(place, text)
        servers = _at(values, place.path)
        there = servers.get(entry)
        wanted = entry_of(place.client, starts, variables, env or {})
        if isinstance(there, Mapping):
            wanted = _merged(there, wanted)
        wanted = _with_timeouts(place, wanted, waits or {})
        leaving = set(names) if there == wanted else {*names, entry}
        new = text
        if leaving:
            new = _call(place, "moved", text, place.path, leaving, None if there == wanted else (entry, wanted))
        _require(place, new, values, {**{key: servers[key] for key in servers if key not in names}, entry: wanted})
        return _encoded(content, new)

    def without_riglm(
        self, place: ConfigLocation, content: bytes, entry: str | None, before: bytes, names: Collection[str]
    ) -> bytes:
        text, earlier = _text(place, content), _text(place, before)
        values = _values(place, text)
        servers, were = _at(values, place.path), _at(_values(place, earlier), place.path)
        new = _call(place, "put_back", text, place.path, entry, earlier, names)
        wanted = {key: servers[key] for key in servers if key != entry} | {name: were[name] for name in names}
        _require(place, new, values, wanted)
        return _encoded(content, new)

    def with_preloading(self, place: ConfigLocation, content: bytes, entry: str) -> bytes:
        there = _at(_values(place, _text(place, content)), (*place.path, entry))
        members = {}
        for key, value in FORMATS[place.client].preload_members.items():
            old = there.get(key)
            if isinstance(value, list) and isinstance(old, list):
                members[key] = [*old, *(each for each in value if each not in old)]
            else:
                members[key] = value
        return _with_members(place, content, {entry: members})

    def without_preloading(self, place: ConfigLocation, content: bytes, entries: Sequence[str], before: bytes) -> bytes:
        if not self.may_defer(place, before, entries[0]):
            return content
        earlier = _at(_values(place, _text(place, before)), place.path)
        members = {}
        for entry in entries:
            was = earlier.get(entry)
            known = was if isinstance(was, Mapping) else {}
            members[entry] = {key: known.get(key) for key in FORMATS[place.client].preload_members}
        return _with_members(place, content, members)

    def may_defer(self, place: ConfigLocation, content: bytes, entry: str) -> bool:
        """Whether the client may defer the tools of an entry, and would not by another setting."""
        try:
            return self.with_preloading(place, content, entry) != content
        except FileNotEditableError:
            return True


def _with_members(place: ConfigLocation, content: bytes, members: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Return the file with these members in entries, None for those to be removed."""
    before = text = _text(place, content)
    values = _values(place, before)
    servers = dict(_at(values, place.path))
    for entry, wanted in members.items():
        there = servers.get(entry)
        if not isinstance(there, Mapping) or all(there.get(key) == value for key, value in wanted.items()):
            continue
        added = {key: value for key, value in wanted.items() if value is not None}
        text = _call(place, "with_members", text, (*place.path, entry), added, wanted.keys() - added.keys())
        servers[entry] = {key: value for key, value in there.items() if key not in wanted} | added
    if text != before:
        _require(place, text, values, servers)
    return _encoded(content, text)


def _present(candidate: CandidatePath) -> list[ConfigLocation]:
    files = (
        sorted(candidate.base.glob(candidate.pattern))
        if "*" in candidate.pattern
        else [candidate.base / candidate.pattern]
    )
    return [
        ConfigLocation(
            client=candidate.client, file=file, path=candidate.path, project=candidate.project, name=candidate.name
        )
        for file in files
        if file.is_file()
    ]


def _with_shared_timeout(entries: Mapping[str, Any], values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the entries of a file, with the timeout that it has for all where an entry has none."""
    *outer, name = key.split(".")
    timeout = _at(values, tuple(outer)).get(name) if key else None
    if timeout is None:
        return entries
    return {each: {"timeout": timeout, **it} if isinstance(it, Mapping) else it for each, it in entries.items()}


def _with_timeouts(place: ConfigLocation, entry: Mapping[str, Any], waits: Mapping[str, float]) -> dict[str, Any]:
    """Return riglm's entry with timeouts that are at least these, where the client would wait for a shorter time."""
    known = FORMATS[place.client].timeouts
    given, changed = timeouts_of(entry, known), dict(entry)
    forms = {key: key.partition(".")[0] for key in known if "." in key}
    if any(key in waits or key in given for key in forms):  # an object, which replaces a number for all of its members
        longest = {
            key: max(each.get(name, 0) for each in (waits, given) for name in (key, forms[key])) for key in forms
        }
        is_shorter = any(given.get(key, given.get(forms[key], known[key].default)) < longest[key] for key in forms)
        waits = longest if is_shorter else {}
        given = {key: value for key, value in given.items() if key in forms}
    for key, value in waits.items():
        if value > given.get(key, known[key].default):
            outer, _, inner = key.partition(".")
            there = changed.get(outer)
            changed[outer] = {**(there if isinstance(there, Mapping) else {}), inner: value} if inner else value
    return changed


def _merged(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the current entry with missing members added: additions of users are kept."""
    merged = dict(there)
    for key, value in wanted.items():
        old = there.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            merged[key] = {**value, **old}
        elif key == "env_vars" and isinstance(old, list):
            merged[key] = [*old, *(each for each in value if each not in old)]
        elif key not in {"enabled", "type"} or old is None:
            merged[key] = value
    return merged


def _require(place: ConfigLocation, text: str, before: Mapping[str, Any], servers: Mapping[str, Any]) -> None:
    """Raise unless the new text equals the old one except for these servers."""
    wanted = _replaced(before, place.path, servers)
    try:
        is_right = _values(place, text) == wanted
    except FileNotEditableError:
        is_right = False
    if not is_right:
        raise FileNotEditableError(
            f"{place.file} is written in a way in which riglm cannot change it faithfully — fix: change it by hand"
        )


def _replaced(values: Mapping[str, Any], path: Sequence[str], servers: Mapping[str, Any]) -> dict[str, Any]:
    if not path:
        return dict(servers)
    inner = values.get(path[0])
    return {**values, path[0]: _replaced(inner if isinstance(inner, Mapping) else {}, path[1:], servers)}


def _at(values: Mapping[str, Any], path: Sequence[str]) -> Mapping[str, Any]:
    here: Any = values
    for key in path:
        here = here.get(key) if isinstance(here, Mapping) else None
    return here if isinstance(here, Mapping) else {}


def _editor(place: ConfigLocation) -> ModuleType:
    return toml_tables if place.file.suffix == ".toml" else json_members


def _values(place: ConfigLocation, text: str) -> dict[str, Any]:
    if not text.strip() and place.file.suffix != ".toml":
        return {}
    found: dict[str, Any] = _call(place, "values", text)
    return found


def _call(place: ConfigLocation, verb: str, *arguments: Any) -> Any:
    try:
        return getattr(_editor(place), verb)(*arguments)
    except FileNotEditableError as error:
        raise FileNotEditableError(f"{place.file}: {error} — fix: mend it, or leave the client out") from None


def _text(place: ConfigLocation, content: bytes) -> str:
    if len(content) > _MAX:
        raise FileNotEditableError(f"{place.file} is larger than 64 MiB")
    try:
        return content.decode("utf-8").removeprefix(_BOM)
    except UnicodeDecodeError as error:
        raise FileNotEditableError(f"{place.file}: byte {error.start} is not UTF-8 — fix: save it as UTF-8") from None


def _encoded(before: bytes, text: str) -> bytes:
    try:
        return (_BOM if before.startswith(_BOM.encode()) else "").encode() + text.encode("utf-8")
    except UnicodeEncodeError:
        raise FileNotEditableError("a text cannot be written as UTF-8") from None


def values_of(file: Path, content: bytes) -> dict[str, Any]:
    """What a file of any kind says, for looking at alone.

    Raises:
        ConfigurationError: it cannot be read.
    """
    if file.suffix in {".yaml", ".yml"}:
        try:
            found = yaml.safe_load(content)
        except (yaml.YAMLError, ValueError):
            raise FileNotEditableError(f"{file} is not YAML") from None
        return found if isinstance(found, dict) else {}
    place = ConfigLocation(client="", file=file, path=())
    return _values(place, _text(place, content))


def home_of(environment: Mapping[str, str]) -> Path:
    """The user's home directory."""
    named = environment.get("USERPROFILE" if os.name == "nt" else "HOME")
    return Path(named) if named else Path.home()
