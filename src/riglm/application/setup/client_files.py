"""Clients' files: the servers in them, and new versions with riglm in the place of servers. Nothing is written."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from riglm.application.setup import json_members, toml_tables
from riglm.application.setup.client_entries import parse_entry, riglm_entry, timeouts_of
from riglm.application.setup.client_rules import ClaudeCodeRules, find_obstacles
from riglm.application.setup.json_members import FileNotEditableError
from riglm.domain.client_setup import ClientServer, ConfigLocation
from riglm.domain.client_support import FORMATS
from riglm.domain.errors import RiglmError

_BOM: Final = "\ufeff"


class ClientFiles:
    """Clients' files on one machine."""

    def __init__(
        self,
        find_files: Callable[[Path | None], Sequence[ConfigLocation]],
        read: Callable[[Path], bytes | None],
        *,
        home: Path,
        environment: Mapping[str, str],
        platform: str,
        include: Collection[str] = (),
    ) -> None:
        """`find_files` returns the user's files that exist, or those of a project.

        `include` are servers to move even if they may require a sign-in.
        """
        self._find_files = find_files
        self._read = read
        self._home = home
        self._include = frozenset(include)
        directory = environment.get("CLAUDE_CONFIG_DIR")
        own_file = Path(directory or home) / ".claude.json"
        self._claude = ClaudeCodeRules(own_file, Path(directory or home / ".claude"), platform, self._read_json)

    def places(self, project: Path | None) -> tuple[ConfigLocation, ...]:
        """Return where servers of clients are; with a project, only what is for work in that directory."""
        found = [*self._find_files(project), *self._claude.places(project)]
        return tuple({(place.file.resolve(), place.path): place for place in reversed(found)}.values())[::-1]

    def servers(self, place: ConfigLocation, content: bytes) -> tuple[ClientServer, ...]:
        """Return the servers at a place in this version of the file; none where the place is not there.

        Raises:
            FileNotEditableError: it is not what its client reads.
        """
        values = _values(place, _text(place, content))
        found = _with_shared_timeout(_at(values, place.path), values, FORMATS[place.client].shared_timeout)
        servers = [
            parse_entry(place, name, entry, self._home, include=name in self._include) for name, entry in found.items()
        ]
        obstacles = find_obstacles(place, found, [values, *self._read_with(place)])
        if place.client == "claude-code":
            obstacles |= self._claude.find_obstacles(place, servers)
        return tuple(
            ClientServer(name=each.name, obstacle=obstacles[each.name], starts=each.starts, url=each.url)
            if each.name in obstacles and each.definition is not None
            else each
            for each in servers
        )

    def remarks(self, place: ConfigLocation, names: Collection[str], entry: str) -> tuple[str, ...]:
        """Return what the user has set for these servers elsewhere, and what becomes of it behind riglm's entry."""
        return self._claude.remarks(place, names, entry) if place.client == "claude-code" else ()

    def _read_with(self, place: ConfigLocation) -> Iterator[Mapping[str, Any]]:
        """Yield the other files that the client merges with this one, if they can be read."""
        if not FORMATS[place.client].has_rules:
            return
        others = [*self._find_files(None), *(self._find_files(place.project) if place.project is not None else ())]
        for other in others:
            if other.client == place.client and place.is_read_with(other):
                with contextlib.suppress(RiglmError):
                    yield _values(other, _text(other, self._read(other.file) or b""))

    def _read_json(self, file: Path) -> Mapping[str, Any]:
        try:
            return json_members.parse((self._read(file) or b"{}").decode("utf-8-sig"))
        except (ValueError, RiglmError):
            return {}

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
        """Return the file with riglm in the place of these servers.

        `starts` is riglm's command line, `variables` are the names of the variables that it needs, `env` contains
        more with their values, `waits` is the client's timeout setting. All other members of an existing entry of
        this name are kept.

        Raises:
            FileNotEditableError: the file cannot be changed faithfully.
        """
        text = _text(place, content)
        values = _values(place, text)
        servers = _at(values, place.path)
        there = servers.get(entry)
        wanted = riglm_entry(place.client, starts, variables, env or {})
        if isinstance(there, Mapping):
            wanted = _merged(there, wanted)
        wanted = _with_timeouts(place, wanted, waits or {})
        leaving = set(names) if there == wanted else {*names, entry}
        new = text
        if leaving:
            with _editor(place) as editor:
                new = editor.replace_entries(text, place.path, leaving, None if there == wanted else (entry, wanted))
        _require(place, new, values, {**{key: servers[key] for key in servers if key not in names}, entry: wanted})
        return _encoded(content, new)

    def without_riglm(
        self, place: ConfigLocation, content: bytes, entry: str | None, before: bytes, names: Collection[str]
    ) -> bytes:
        """Return the file with servers of an earlier version of it where riglm is, or at the end if that is not there.

        Raises:
            FileNotEditableError: the file cannot be changed faithfully.
        """
        text, earlier = _text(place, content), _text(place, before)
        values = _values(place, text)
        servers, were = _at(values, place.path), _at(_values(place, earlier), place.path)
        with _editor(place) as editor:
            new = editor.restore_entries(text, place.path, entry, earlier, names)
        wanted = {key: servers[key] for key in servers if key != entry} | {name: were[name] for name in names}
        _require(place, new, values, wanted)
        return _encoded(content, new)

    def with_preloading(self, place: ConfigLocation, content: bytes, entry: str) -> bytes:
        """Return the file by which the client loads the tools of riglm's entry at once, and does not defer them.

        It is the same file for a client that defers no tools, or honors preload hints.

        Raises:
            FileNotEditableError: the file cannot be changed faithfully.
        """
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
        """Return the file without what `with_preloading` changed in `before`.

        `entries` are riglm's name then, and others that it has now.

        Raises:
            FileNotEditableError: the file cannot be changed faithfully.
        """
        if not self.may_defer(place, before, entries[0]):
            return content
        earlier = _at(_values(place, _text(place, before)), place.path)
        keys = FORMATS[place.client].preload_members
        members = {entry: {key: _at(earlier, (entry,)).get(key) for key in keys} for entry in entries}
        return _with_members(place, content, members)

    def may_defer(self, place: ConfigLocation, content: bytes, entry: str) -> bool:
        """True if the client may defer the tools of an entry, and would not by another setting."""
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
        with _editor(place) as editor:
            text = editor.set_members(text, (*place.path, entry), added, wanted.keys() - added.keys())
        servers[entry] = {key: value for key, value in there.items() if key not in wanted} | added
    if text != before:
        _require(place, text, values, servers)
    return _encoded(content, text)


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
            changed[outer] = {**_at(changed, (outer,)), inner: value} if inner else value
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
    """Raise FileNotEditableError unless the new text equals the old one except for these servers."""
    try:
        is_right = _values(place, text) == _replaced(before, place.path, servers)
    except FileNotEditableError:
        is_right = False
    if not is_right:
        raise FileNotEditableError(
            f"{place.file} is written in a way in which riglm cannot change it faithfully — fix: change it by hand"
        )


def _replaced(values: Mapping[str, Any], path: Sequence[str], servers: Mapping[str, Any]) -> dict[str, Any]:
    if not path:
        return dict(servers)
    return {**values, path[0]: _replaced(_at(values, path[:1]), path[1:], servers)}


def _at(values: Mapping[str, Any], path: Sequence[str]) -> Mapping[str, Any]:
    here: Any = values
    for key in path:
        here = here.get(key) if isinstance(here, Mapping) else None
    return here if isinstance(here, Mapping) else {}


def _values(place: ConfigLocation, text: str) -> dict[str, Any]:
    if not text.strip() and place.file.suffix != ".toml":
        return {}
    with _editor(place) as editor:
        found: dict[str, Any] = editor.parse(text)
    return found


@contextlib.contextmanager
def _editor(place: ConfigLocation) -> Iterator[Any]:
    """Return the module for the format of a file; its errors get the file's name and a fix."""
    try:
        yield toml_tables if place.file.suffix == ".toml" else json_members
    except FileNotEditableError as error:
        raise FileNotEditableError(f"{place.file}: {error} — fix: correct it, or leave the client out") from None


def _text(place: ConfigLocation, content: bytes) -> str:
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
    """Return the content of a JSON or TOML file.

    Raises:
        FileNotEditableError: it cannot be read.
    """
    place = ConfigLocation(client="", file=file, path=())
    return _values(place, _text(place, content))
