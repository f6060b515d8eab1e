"""Servers of a client's own file: one that riglm cannot use is left out, and the others are used."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from riglm.adapters.configuration.loading import Draft, read_document
from riglm.adapters.configuration.variables import Expansion
from riglm.domain.client_setup import as_text, auth_of, names_behind
from riglm.domain.schemas.problems import ConfigProblem, keys_at, problems_in, refusal
from riglm.domain.schemas.settings import Settings

_SERVERS: Final = "mcpServers"
_KEYS: Final = (_SERVERS, "servers")
_KNOWN: Final = frozenset(keys_at(("upstream",))) | {"serverUrl", "httpUrl", "environment", "transport"}
_URLS: Final = ("url", "serverUrl", "httpUrl")
_ONLY_OF_COMMANDS: Final = frozenset({"command", "args", "env", "environment", "cwd"})
_ONLY_OF_URLS: Final = frozenset({*_URLS, "headers", "auth", "metamcp"})
_KINDS: Final = ("type", "transport")
_KINDS_OF_URLS: Final = frozenset({"http", "sse", "streamable-http", "streamableHttp", "streamable_http", "remote"})
_MAPS: Final = ("env", "environment", "headers")
_MAX_NAME: Final = 60


@dataclass(frozen=True, slots=True)
class ClientEntry:
    """A server in a client's file: its name and place there, and what keeps riglm from reading it."""

    source: str
    name: str
    place: str
    problems: tuple[ConfigProblem, ...] = ()


def take_servers(draft: Draft, file: Path, environment: Mapping[str, str]) -> None:
    """Put the servers of a client's file into the draft, by the names that `riglm init` would give them.

    Takes `mcpServers` (Claude, Cursor and most others) and `servers` (VS Code). Keys that riglm does not know are left
    out, and so are servers that are disabled.

    Raises:
        ConfigurationError: the file cannot be read, or lists no servers.
    """
    found, problems = read_document(file)
    source = str(file)
    shapes = [key for key in _KEYS if isinstance(found.get(key), dict)]
    if not shapes:
        raise refusal(source, "", "the file lists no servers", 'give it "mcpServers": {"NAME": {...}}')
    key = next((key for key in shapes if found[key]), shapes[0])
    draft.warnings += map(str, problems)
    servers = {name: server for name, server in found[key].items() if not _is_off(server)}
    if not servers:
        what, fix = "it lists no servers", f'give it "{key}": {{"NAME": {{...}}}}'
        if found[key]:
            what, fix = "all servers of the file are disabled", "enable one, or name another file"
        raise refusal(source, key, what, fix)
    names = names_behind(servers)
    for name, server in servers.items():
        expansion = Expansion(source, environment, of_client=True)
        _take_server(draft, name, names[name], server, f"{key}.{_shown(name)}", expansion)


def _take_server(draft: Draft, name: str, behind: str, server: Any, place: str, expansion: Expansion) -> None:
    path = (_SERVERS, behind)
    if isinstance(server, dict):
        draft.set(path, expansion(_known(server), path), expansion.source)
        draft.take_variables(expansion)
        problems = tuple(expansion.problems)
    else:
        problems = (ConfigProblem(expansion.source, ".".join(path), "this is not an object", 'write {"command": "…"}'),)
    draft.client_entries[behind] = ClientEntry(expansion.source, name, place, problems)


def leave_out_unusable(draft: Draft) -> None:
    """Remove the servers of a client's file that cannot be used, with one warning for each.

    If no server is left, the problems are errors.
    """
    unusable = {}
    for name, entry in draft.client_entries.items():
        if problems := entry.problems or _problems_of(name, draft.values[_SERVERS][name], entry):
            unusable[name] = [_in_file(problem, name, entry) for problem in problems]
            draft.drop_server(name)
        elif name != entry.name:
            what = f"this name is not valid in riglm, where the server is called {name}"
            renamed = ConfigProblem(entry.source, entry.place, what, "rename it to choose another name")
            draft.warnings.append(str(renamed))
    if len(unusable) == len(draft.client_entries):
        draft.problems += [problem for problems in unusable.values() for problem in problems]
    else:
        draft.warnings += [_warning(draft.client_entries[name], problems) for name, problems in unusable.items()]


def _problems_of(name: str, values: Any, entry: ClientEntry) -> list[ConfigProblem]:
    try:
        Settings.model_validate({_SERVERS: {name: values}})
    except ValidationError as error:
        return problems_in(error, {}, entry.source)
    return []


def _in_file(problem: ConfigProblem, name: str, entry: ClientEntry) -> ConfigProblem:
    return replace(problem, path=entry.place + problem.path.removeprefix(f"{_SERVERS}.{name}"))


def _warning(entry: ClientEntry, problems: list[ConfigProblem]) -> str:
    """One line about all problems of a server."""
    fixes = "; ".join(dict.fromkeys(problem.fix for problem in problems))
    path, what = problems[0].path, problems[0].what
    if len(problems) > 1:
        path = entry.place
        what = "; ".join(f"{each.what} (`{each.path.removeprefix(entry.place)[1:] or 'entry'}`)" for each in problems)
    return str(ConfigProblem(entry.source, path, f"{what}; the server is left out", fixes))


def _shown(name: str) -> str:
    plain = "".join(letter if letter.isprintable() else "?" for letter in name)
    if not plain:
        return '""'
    return plain if len(plain) <= _MAX_NAME else f"{plain[:_MAX_NAME]}…"


def _is_off(server: Any) -> bool:
    return isinstance(server, dict) and (server.get("disabled") is True or server.get("enabled") is False)


def _known(server: Mapping[str, Any]) -> dict[str, Any]:
    """The members that riglm knows, that are not empty, and that go with the kind of server.

    A command comes before a URL, unless the type is one of URLs. Numbers and booleans of maps are text.
    """
    known = {
        key: value
        for key, value in server.items()
        if key in _KNOWN and value not in (None, "", [], {}) and (key not in _KINDS or isinstance(value, str))
    }
    has_url = any(key in known for key in _URLS)
    reached_by_url = has_url and ("command" not in known or any(known.get(key) in _KINDS_OF_URLS for key in _KINDS))
    for key in _ONLY_OF_COMMANDS if reached_by_url else _ONLY_OF_URLS:
        known.pop(key, None)
    for key in _MAPS:
        if isinstance(known.get(key), dict):
            known[key] = {name: as_text(value) for name, value in known[key].items()}
    if reached_by_url:
        known["auth"] = _auth(server)
    return known


def _auth(server: Mapping[str, Any]) -> Any:
    """The sign-in of a server: the settings of riglm with those of clients translated; None if there is nothing to set.

    What cannot be translated stays, and keeps the server from being used.
    """
    own = server.get("auth")
    translated, others = auth_of(server)
    if isinstance(own, Mapping):
        translated = {key: value for key, value in own.items() if key in others} | translated
    elif "auth" in others:
        return own
    elif any(name.lower() == "authorization" for name in server.get("headers") or ()):
        return None
    return translated or None
