"""The configuration from all its places: options over environment over file over defaults."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from riglm.adapters.configuration.data_directory import data_directory
from riglm.adapters.configuration.draft import Draft
from riglm.adapters.configuration.environment import settings_in
from riglm.adapters.configuration.expansion import Expansion
from riglm.adapters.configuration.problem import KeyPath, Problem, refusal, refuse_any
from riglm.domain.schemas.settings import Settings

FILE_NAME = "riglm.yaml"
"""The file that is read from the working directory when no other is named."""

_DATABASE = "riglm.db"
_SERVERS = ("upstream", "mcpServers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line asks for.

    `values` holds other options: the option's name, the path that it sets, the value. Commands that only look at what
    was recorded leave the servers out, so that a variable that only a server needs may be unset. Those that are
    `about_knowledge` go by the variables of the inner voice also where the tool is switched off.
    """

    config: Path | None = None
    mcp_json: Path | None = None
    url: str | None = None
    command: Sequence[str] = ()
    values: Sequence[tuple[str, KeyPath, Any]] = ()
    with_servers: bool = True
    about_knowledge: bool = False


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings, for each path that something set what set it, what was asked for, and the file that was read.

    `warnings` report what was changed or left out of the settings.
    """

    settings: Settings
    origins: Mapping[KeyPath, str]
    options: Options = field(default_factory=Options)
    file: Path | None = None
    warnings: tuple[str, ...] = ()


def load(
    options: Options, *, environment: Mapping[str, str] | None = None, directory: Path | None = None
) -> Configuration:
    """Read, merge and validate the configuration; ConfigurationError names everything that is wrong with it."""
    environment = os.environ if environment is None else environment
    file = _file(options, directory)
    draft = _drafted(options, environment, file)
    warnings = _take_inner_voice(draft, environment, options)
    for name, path, value in options.values:
        draft.set(path, value, name)
    if not draft.holds("storage", "path") and not draft.holds("storage", "url"):
        draft.set(("storage", "path"), default_store(environment), "default")
    settings = _validated(draft, str(file) if file else FILE_NAME)
    return Configuration(settings, draft.origins, options, file, tuple(warnings))


def set_values(options: Options, *, environment: Mapping[str, str] | None = None) -> Mapping[str, Any]:
    """What a configuration sets, unchecked, for a command that starts none of its servers: a variable may be unset.

    Raises:
        ConfigurationError: a file cannot be read.
    """
    return _drafted(options, os.environ if environment is None else environment, _file(options, None)).values


def default_store(environment: Mapping[str, str]) -> str:
    """The database file that is used when the configuration names no store."""
    return str(data_directory(environment) / _DATABASE)


def _drafted(options: Options, environment: Mapping[str, str], file: Path | None) -> Draft:
    draft = Draft()
    if file is not None:
        _take_file(draft, file, environment, options)
    _take_environment(draft, environment, options, file)
    _take_servers(draft, environment, options)
    return draft


def _file(options: Options, directory: Path | None) -> Path | None:
    return options.config or _present((directory or Path.cwd()) / FILE_NAME)


def _present(file: Path) -> Path | None:
    return file if file.is_file() else None


def _take_file(draft: Draft, file: Path, environment: Mapping[str, str], options: Options) -> None:
    from riglm.adapters.configuration import document

    found = document.read(file)
    expansion = Expansion(found.source, environment)
    ignored = () if options.with_servers else _SERVERS
    values = {key: value for key, value in found.values.items() if key not in ignored}
    draft.set((), expansion(values), found.source)
    draft.take_down(expansion)
    draft.problems += found.problems


def _take_client_file(draft: Draft, file: Path, environment: Mapping[str, str]) -> None:
    from riglm.adapters.configuration import client_file

    found = client_file.read(file)
    expansion = Expansion(found.source, environment, of_client=True)
    draft.set((), expansion(found.values), found.source)
    draft.take_down(expansion)
    draft.problems += found.problems


def _take_environment(draft: Draft, environment: Mapping[str, str], options: Options, file: Path | None) -> None:
    servers = draft.values.get("mcpServers")
    for found in settings_in(environment, tuple(servers) if isinstance(servers, dict) else ()):
        if isinstance(found, Problem):
            if not _mentioned(found.source, options, file):
                draft.problems.append(found)
        elif options.with_servers or found[1][0] not in _SERVERS:
            name, path, value = found
            draft.set(path, value, name)


def _take_inner_voice(draft: Draft, environment: Mapping[str, str], options: Options) -> list[str]:
    if not any(name.startswith("SURR_") for name in environment):
        return []
    from riglm.adapters.configuration import inner_voice

    return inner_voice.take(draft, environment, always=options.about_knowledge)


def _mentioned(variable: str, options: Options, file: Path | None) -> bool:
    """Whether a file asks for the variable by name, so that it need not be a setting."""
    wanted = re.compile(rf"\$\{{(env:)?{re.escape(variable)}\b".encode())
    return any(wanted.search(each.read_bytes()) for each in (file, options.mcp_json) if each and each.is_file())


def _take_servers(draft: Draft, environment: Mapping[str, str], options: Options) -> None:
    """A server named on the command line replaces every other one."""
    given = [bool(options.mcp_json), bool(options.url), bool(options.command)]
    if sum(given) > 1:
        fix = "keep one of --mcp-json, --url and -- COMMAND"
        draft.problems.append(Problem("command line", "", "servers are named in several ways", fix))
    if any(given):
        draft.drop(*_SERVERS)
    if options.mcp_json:
        _take_client_file(draft, options.mcp_json, environment)
    elif options.url:
        draft.set(("upstream",), {"url": options.url}, "--url")
    elif options.command:
        draft.set(("upstream",), {"command": list(options.command)}, "command line")


def _validated(draft: Draft, default_origin: str) -> Settings:
    try:
        settings = Settings.model_validate(draft.values)
    except ValidationError as error:
        from riglm.adapters.configuration.explanation import problems_in

        told = {(problem.source, problem.path) for problem in draft.problems if problem.path}
        more = [
            found
            for found in problems_in(error, draft.origins, default_origin)
            if (found.source, found.path) not in told  # what a variable left unset made of a value is no second problem
        ]
        raise refusal(*draft.problems, *more) from None
    refuse_any(draft.problems)
    return settings.aware_of(draft.from_variables)
