"""The configuration from all its places: options over changes at run time, environment, file and defaults."""

import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from riglm.adapters.configuration.locations import default_store
from riglm.adapters.configuration.variables import PREFIX, Expansion, read_variables, take_inner_voice
from riglm.domain.schemas.problems import (
    ConfigProblem,
    IndexedKeyPath,
    dotted,
    holds_text,
    problems_in,
    refusal,
    refuse_any,
)
from riglm.domain.schemas.settings import LEFT_OUT, Settings

if TYPE_CHECKING:
    from riglm.adapters.configuration.client_file import ClientEntry


class Draft:
    """Values by path, what set each of them last, and what was found wrong on the way."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.origins: dict[IndexedKeyPath, str] = {}
        self.problems: list[ConfigProblem] = []
        self.warnings: list[str] = []
        self.from_variables: set[str] = set()
        self.client_entries: dict[str, ClientEntry] = {}
        """The servers of a client's file, by their names behind riglm."""
        self.left_out: set[str] = set()

    def set(self, path: IndexedKeyPath, value: Any, origin: str) -> None:
        """Put a value at a path. Mappings are merged with what is there, all else replaces it; None sets nothing."""
        if value is None:
            return
        if path:
            self._hold(path, {} if isinstance(value, dict) else value)
        if value == {} or not isinstance(value, dict):
            self.origins[path] = origin
        if isinstance(value, dict):
            for key, item in value.items():
                self.set((*path, str(key)), item, origin)

    def take_variables(self, expansion: Expansion) -> None:
        """Note what variables put into values that may be any text."""
        for path, values in expansion.found.items():
            if holds_text(path):
                self.from_variables.update(values)

    def drop(self, *keys: str) -> None:
        """Forget all that was set at or below these keys of the top."""
        for key in keys:
            self.values.pop(key, None)
        self.origins = {path: origin for path, origin in self.origins.items() if not path or path[0] not in keys}

    def drop_server(self, name: str) -> None:
        """Forget all that was set of one of `mcpServers`, which cannot be used, but not that there is one."""
        self.left_out.add(name)
        servers = self.values.get("mcpServers", {})
        servers.pop(name, None)
        if not servers:
            self.values.pop("mcpServers", None)
        self.origins = {path: each for path, each in self.origins.items() if path[:2] != ("mcpServers", name)}

    def _hold(self, path: IndexedKeyPath, value: Any) -> None:
        here = self.values
        for part in path[:-1]:
            inner = here.get(str(part))
            if not isinstance(inner, dict):
                inner = here[str(part)] = {}
            here = inner
        last = str(path[-1])
        if value != {} or not isinstance(here.get(last), dict):
            here[last] = value


def read_document(file: Path) -> tuple[dict[str, Any], list[ConfigProblem]]:
    """Return the values of a `.json` file, in which comments may be, or else of a YAML file, and its duplicate keys.

    Raises:
        ConfigurationError: it cannot be read.
    """
    source = str(file)
    text = _text(file, source)
    values, problems = _read_json(text, source) if file.suffix == ".json" else _read_yaml(text, source)
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise refusal(source, "", "the file does not hold keys with values", "write `key: value` at the top")
    return values, problems


def _text(file: Path, source: str) -> str:
    try:
        return file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise refusal(source, "", "there is no such file", "create it, or name another") from None
    except OSError as error:
        what = f"the file cannot be read ({error.strerror})"
        raise refusal(source, "", what, "name a file that you may read") from None
    except UnicodeDecodeError as error:
        raise refusal(source, f"byte {error.start}", "the file is not UTF-8", "save it as UTF-8") from None


def _read_yaml(text: str, source: str) -> tuple[Any, list[ConfigProblem]]:
    import yaml

    problems: list[ConfigProblem] = []

    class Loader(yaml.SafeLoader):
        """Notes each duplicate key of a mapping."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                    continue
                if key.value in seen:
                    problems.append(_twice(source, key.value, f"line {key.start_mark.line + 1}"))
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader), problems  # noqa: S506  # a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        what = f"this is not YAML ({error.problem})"
        raise refusal(source, place, what, "mind the indentation and the quotes") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        what = f"this is not YAML ({type(error).__name__})"
        raise refusal(source, "", what, "mind unusual characters and depth") from None


def _read_json(text: str, source: str) -> tuple[Any, list[ConfigProblem]]:
    from riglm.domain.client_setup import plain_json

    problems: list[ConfigProblem] = []

    def construct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        counts = Counter(key for key, _ in pairs)
        problems.extend(_twice(source, key, "") for key, count in counts.items() if count > 1)
        return dict(pairs)

    try:
        return json.loads(plain_json(text), object_pairs_hook=construct), problems
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        what = f"this is not JSON ({error.msg})"
        raise refusal(source, place, what, "mind the commas, quotes and brackets") from None
    except (ValueError, RecursionError) as error:
        what = f"this is not JSON that riglm reads ({type(error).__name__})"
        raise refusal(source, "", what, "mind long numbers and depth") from None


def _twice(source: str, key: str, place: str) -> ConfigProblem:
    return ConfigProblem(source, place, f"the key `{key}` occurs twice in one place", "keep one of them")


FILE_NAME = "riglm.yaml"
"""The file that is read from the working directory when no other is named."""

_SERVERS = ("upstream", "mcpServers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line asks for.

    `values` holds other options: the option's name, the path that it sets, the value. Commands that only look at what
    was recorded leave the servers out, so that a variable that only a server needs may be unset. Those that are
    `about_knowledge` go by the variables of the inner voice also where the tool is disabled.
    """

    config: Path | None = None
    mcp_json: Path | None = None
    url: str | None = None
    command: Sequence[str] = ()
    values: Sequence[tuple[str, IndexedKeyPath, Any]] = ()
    with_servers: bool = True
    about_knowledge: bool = False


@dataclass(frozen=True, slots=True)
class Configuration:
    """The settings, for each path that something set what set it, what was asked for, and the file that was read.

    `warnings` report what was changed or left out of the settings.
    """

    settings: Settings
    origins: Mapping[IndexedKeyPath, str]
    options: Options = field(default_factory=Options)
    file: Path | None = None
    warnings: tuple[str, ...] = ()

    @property
    def fixed_keys(self) -> frozenset[tuple[str, ...]]:
        """The keys that the command line sets."""
        return frozenset(tuple(map(str, path)) for _, path, value in self.options.values if value is not None)


def load(
    options: Options, *, environment: Mapping[str, str] | None = None, directory: Path | None = None
) -> Configuration:
    """Read, merge and validate the configuration; ConfigurationError names everything that is wrong with it."""
    environment = os.environ if environment is None else environment
    file = _find_file(options, directory)
    draft = _drafted(options, environment, file)
    if draft.client_entries:
        from riglm.adapters.configuration.client_file import leave_out_unusable

        leave_out_unusable(draft)
    if any(name.startswith("SURR_") for name in environment):
        draft.warnings += take_inner_voice(draft, environment, always=options.about_knowledge)
    for name, path, value in options.values:
        draft.set(path, value, name)
    storage = draft.values.get("storage", {})
    if isinstance(storage, dict) and not storage.keys() & {"path", "url"}:
        draft.set(("storage", "path"), default_store(environment), "default")
    settings = _validated(draft, str(file) if file else FILE_NAME)
    floor, min_floor = settings.knowledge.floor, settings.knowledge.min_floor
    if min_floor > floor:
        origin = draft.origins.get(("knowledge", "min_floor"), "")
        name = origin if origin.startswith("SURR_") else "knowledge.min_floor"
        what = f"{min_floor:g} is above knowledge.floor ({floor:g}) and has no effect"
        draft.warnings.append(f"{name}: {what} — fix: raise knowledge.floor")
    return Configuration(settings, draft.origins, options, file, tuple(draft.warnings))


def set_values(options: Options, *, environment: Mapping[str, str] | None = None) -> Mapping[str, Any]:
    """What a configuration sets, unchecked, for a command that starts none of its servers: a variable may be unset.

    Raises:
        ConfigurationError: a file cannot be read.
    """
    return _drafted(options, os.environ if environment is None else environment, _find_file(options, None)).values


CHANGED: Final = "changed at run time"
"""The origin of values that are kept in the store."""


def with_setting_changes(configuration: Configuration, stored: Mapping[str, Any]) -> Configuration:
    """Return a configuration with the changes that its store holds; a warning names those that it cannot take."""
    from riglm.domain.errors import InvalidInputError
    from riglm.domain.schemas.changes import leave_out, merge_changes, read_changes

    changes, warnings = read_changes(stored, configuration.settings, configuration.fixed_keys), configuration.warnings
    settings = None
    while settings is None:
        try:
            settings = merge_changes(configuration.settings, changes)
        except InvalidInputError as error:
            changes, warnings = leave_out(changes, error.faults), (*warnings, f"{CHANGED}, and not applied: {error}")
    origins = dict(configuration.origins)
    origins.update((path, CHANGED) for path in changes)
    return replace(configuration, settings=settings, origins=origins, warnings=warnings)


def list_values(configuration: Configuration) -> list[tuple[str, Any, str]]:
    """Return each setting's path, value without secrets, and origin; of a server only what is set."""
    from riglm.domain.schemas.changes import disclose, list_leaves
    from riglm.domain.schemas.problems import setter_of

    leaves = list_leaves(disclose(configuration.settings))
    return [(dotted(path), value, setter_of(path, configuration.origins) or "default") for path, value in leaves]


def _drafted(options: Options, environment: Mapping[str, str], file: Path | None) -> Draft:
    draft = Draft()
    if file is not None:
        _take_file(draft, file, environment, options)
    _take_environment(draft, environment, options, file)
    _take_servers(draft, environment, options)
    return draft


def _find_file(options: Options, directory: Path | None) -> Path | None:
    here = (directory or Path.cwd()) / FILE_NAME
    return options.config or (here if here.is_file() else None)


def _take_file(draft: Draft, file: Path, environment: Mapping[str, str], options: Options) -> None:
    found, problems = read_document(file)
    expansion = Expansion(str(file), environment)
    ignored = () if options.with_servers else _SERVERS
    values = {key: value for key, value in found.items() if key not in ignored}
    draft.set((), expansion(values), expansion.source)
    draft.take_variables(expansion)
    draft.problems += [*expansion.problems, *problems]


def _take_environment(draft: Draft, environment: Mapping[str, str], options: Options, file: Path | None) -> None:
    servers = draft.values.get("mcpServers")
    for found in read_variables(environment, tuple(servers) if isinstance(servers, dict) else ()):
        if isinstance(found, ConfigProblem):
            if not _mentioned(found.source, options, file):
                draft.problems.append(found)
        elif options.with_servers or found[1][0] not in _SERVERS:
            name, path, value = found
            draft.set(path, value, name)


def _mentioned(variable: str, options: Options, file: Path | None) -> bool:
    """Whether a file asks for the variable by name, so that it need not be a setting."""
    wanted = re.compile(rf"\$\{{(env:)?{re.escape(variable)}\b".encode())
    return any(wanted.search(each.read_bytes()) for each in (file, options.mcp_json) if each and each.is_file())


def _take_servers(draft: Draft, environment: Mapping[str, str], options: Options) -> None:
    """A server named on the command line replaces every other one."""
    given = [bool(options.mcp_json), bool(options.url), bool(options.command)]
    if sum(given) > 1:
        fix = "keep one of --mcp-json, --url and -- COMMAND"
        draft.problems.append(ConfigProblem("command line", "", "servers are named in several ways", fix))
    variables = _url_variables(draft) if options.url else []
    if any(given):
        draft.drop(*_SERVERS)
    if options.mcp_json:
        from riglm.adapters.configuration.client_file import take_servers

        take_servers(draft, options.mcp_json, environment)
    elif options.url:
        draft.set(("upstream",), {"url": options.url}, "--url")
        for path, value, name in variables:
            draft.set(path, value, name)
    elif options.command:
        draft.set(("upstream",), {"command": list(options.command)}, "command line")


def _url_variables(draft: Draft) -> list[tuple[IndexedKeyPath, Any, str]]:
    """Return what variables set of `upstream` for its URL, unless they are meant for another URL."""
    upstream = draft.values.get("upstream")
    if not isinstance(upstream, dict) or "url" in upstream:
        return []
    return [
        (path, reduce(lambda values, key: values[str(key)], path, draft.values), origin)
        for path, origin in draft.origins.items()
        if path[:1] == ("upstream",)
        and path[1:2] in (("auth",), ("headers",), ("metamcp",))
        and origin.startswith(PREFIX)
    ]


def _validated(draft: Draft, default_origin: str) -> Settings:
    try:
        settings = Settings.model_validate(draft.values, context={LEFT_OUT: draft.left_out})
    except ValidationError as error:
        known = {(problem.source, problem.path) for problem in draft.problems if problem.path}
        found = problems_in(error, draft.origins, default_origin)
        # What a variable left unset made of a value is no second problem.
        draft.problems += [each for each in found if (each.source, each.path) not in known]
    refuse_any(draft.problems)
    return settings.aware_of(draft.from_variables)
