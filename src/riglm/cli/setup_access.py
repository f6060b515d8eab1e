"""What `riglm init`, `riglm undo` and `riglm enforce` work with, and what other commands read of what they did."""

import asyncio
import contextlib
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import unified_diff
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer
import yaml

from riglm.adapters.clients.places import SafeFiles, find_files, home_of, own_command, unedited_files
from riglm.adapters.configuration.loading import FILE_NAME, Options
from riglm.adapters.configuration.locations import (
    VARIABLE,
    configuration_directory,
    data_directory,
    other_data_directories,
)
from riglm.adapters.configuration.presence import load_server
from riglm.application.setup.client_files import ClientFiles, values_of
from riglm.application.setup.init import SetupPlanner
from riglm.application.setup.undo import SetupContext, SetupJournal
from riglm.cli.output import printable
from riglm.container import Container
from riglm.domain import redaction
from riglm.domain.client_setup import (
    ClientServer,
    ClientSetup,
    ConfigLocation,
    FileChange,
    RiglmServerEntry,
    is_riglm,
    starts_riglm,
)
from riglm.domain.errors import RiglmError

if TYPE_CHECKING:
    from riglm.domain.schemas.server import ServerSettings


_KEPT_IN: Final = "clients"
_MOVES_THE_DATA: Final = (VARIABLE, "XDG_DATA_HOME")


def find_sign_ins(servers: "Mapping[str, ServerSettings]") -> dict[str, bool | None]:
    """Return True for servers that require a sign-in and have no account, and None for those that do not respond.

    Raises:
        RiglmError: the accounts cannot be read.
    """
    from riglm.adapters.mcp.oauth.ping import require_tokens

    accounts = Container().account_file()
    specs = {name: settings.spec(name) for name, settings in servers.items()}
    absent = {name: spec for name, spec in specs.items() if accounts.find(spec.account_key) is None}
    return dict.fromkeys(specs, False) | dict(zip(absent, asyncio.run(require_tokens(absent.values())), strict=True))


def setup_context(include: Collection[str] = (), project: Path | None = None) -> SetupContext:
    """Return what changes clients' files, also what was changed with other variables than these.

    `include` are servers to move even if a user may have to sign in; for a project, its files are read.
    """
    environment, files = os.environ, SafeFiles()
    clients = _client_files(files, include)
    directories = _journal_directories(clients, project)
    moves_data = any(environment.get(name) for name in _MOVES_THE_DATA)
    return SetupContext(
        clients=clients,
        journal=SetupJournal(directories, files.read, files.write),
        read=files.read,
        write=files.write,
        command=_command(),
        directory=configuration_directory(environment),
        env={VARIABLE: str(data_directory(environment).absolute())} if moves_data else {},  # not all clients pass it on
        environment=environment,
        load_server=partial(load_server, environment=environment),
        find_sign_ins=find_sign_ins,
    )


def _client_files(files: SafeFiles, include: Collection[str] = ()) -> ClientFiles:
    environment, home = os.environ, home_of(os.environ)
    find = partial(find_files, platform=sys.platform, environment=environment, home=home)
    return ClientFiles(find, files.read, home=home, environment=environment, platform=sys.platform, include=include)


def servers_to_sign_in() -> "dict[str, ServerSettings]":
    """Return the servers of clients, also of the project in this directory, that stay only for lack of an account."""
    planner = SetupPlanner(setup_context())
    plans = (*planner.plans((), None), *planner.plans((), Path.cwd()))
    return {name: settings for plan in plans for name, settings in plan.sign_ins.items()}


def unedited() -> Iterator[tuple[str, Path, tuple[str, ...]]]:
    """Yield the clients with servers that riglm could proxy, in a file that it does not edit; and riglm's command."""
    for title, file in unedited_files(sys.platform, os.environ, home_of(os.environ)).items():
        with contextlib.suppress(OSError, ValueError, yaml.YAMLError):
            values = yaml.safe_load(file.read_bytes())
            extensions = values.get("extensions") if isinstance(values, dict) else None
            found = extensions.values() if isinstance(extensions, dict) else ()
            stdio = [each for each in found if isinstance(each, dict) and each.get("type") == "stdio"]
            if any(not starts_riglm([str(each.get("cmd")), *map(str, each.get("args") or ())]) for each in stdio):
                yield title, file, _command()


def installations() -> tuple[ClientSetup, ...]:
    """Return the latest setup in each location that was not undone, with the servers of all of them there.

    There is none if `riglm init` never ran.
    """
    files, latest = SafeFiles(), dict[tuple[Path, tuple[str, ...]], ClientSetup]()
    for each in SetupJournal([data_directory(os.environ) / _KEPT_IN], files.read, files.write).all():
        place = each.place.file, each.place.path
        moved = latest[place].servers if place in latest else {}
        latest[place] = replace(each, servers={**moved, **each.servers})
    return tuple(latest.values())


def configurations_in_use(options: Options, setups: Sequence[ClientSetup]) -> list[tuple[Options, ClientSetup | None]]:
    """Return the configuration in use, or where none is named or found, those that clients start riglm with.

    With each is what `riglm init` did when it made it.
    """
    files = {each.configuration: each for each in setups if each.configuration.is_file()}
    if is_named(options) or Path(FILE_NAME).is_file() or not files:
        return [(options, files.get(options.config.absolute()) if options.config is not None else None)]
    return [(Options(config=file), each) for file, each in files.items()]


def is_named(options: Options) -> bool:
    """True if the options name a file."""
    return options.config is not None or options.mcp_json is not None


def riglm_entries(directory: Path | None = None) -> tuple[RiglmServerEntry, ...]:
    """Return the entries in clients' files that start riglm, from any source; unreadable files have a `fault`.

    Looked at are the user's own files and those of the project in `directory`.
    """
    clients = _client_files(SafeFiles())
    found = []
    for place, content, servers in _servers_at(clients, directory):
        entry = partial(RiglmServerEntry, client=place.client, file=place.file)
        if isinstance(servers, str):
            found.append(entry(fault=servers))
            continue
        for one in filter(is_riglm, servers):
            may_defer = clients.may_defer(place, content, one.name)
            found.append(entry(entry=one.name, command=one.starts, url=one.url, may_defer=may_defer))
    return tuple(dict.fromkeys(found))


def _servers_at(
    clients: ClientFiles, directory: Path | None
) -> Iterator[tuple[ConfigLocation, bytes, tuple[ClientServer, ...] | str]]:
    """Yield each place of the user and of a project, the file's content, and its servers or why it is unreadable."""
    for place in (*clients.places(None), *clients.places(directory or Path.cwd())):
        try:
            content = place.file.read_bytes()
            yield place, content, clients.servers(place, content)
        except (OSError, RiglmError) as error:
            yield place, b"", str(error)


def _journal_directories(clients: ClientFiles, project: Path | None) -> tuple[Path, ...]:
    """Return the directories that may contain a setup journal; the first, for these variables, gets new entries.

    A riglm with different variables has them in the client's file. Those in a project's files are ignored, because a
    journal determines which files are written, and with what.
    """
    found = [data_directory(os.environ), *other_data_directories(os.environ, home_of(os.environ))]
    for place, _, servers in _servers_at(clients, project):
        is_brought_along = place.project is not None and place.file.is_relative_to(place.project)
        if isinstance(servers, str) or is_brought_along:
            continue
        named = [(one.definition or {}).get("env", {}).get(VARIABLE) for one in servers if is_riglm(one)]
        found += [Path(directory) for directory in named if directory and Path(directory).is_absolute()]
    different: dict[Path, Path] = {}
    for directory in found:
        different.setdefault(directory.resolve(), directory / _KEPT_IN)
    return tuple(different.values())


def _cover(rewritings: Sequence[FileChange]) -> Callable[[str], str]:
    """Return what masks the secrets of these files in any text; their names are no secrets."""
    first = {rewriting.file: rewriting.before for rewriting in reversed(rewritings)}
    last = {rewriting.file: rewriting.after for rewriting in rewritings}
    documents = []
    for file, content in (*first.items(), *last.items()):  # what is between has no other servers than these two
        with contextlib.suppress(RiglmError, yaml.YAMLError, ValueError):
            is_yaml = file.suffix in {".yaml", ".yml"}
            documents.append(yaml.safe_load(content or b"") if is_yaml else values_of(file, content or b""))
    return Cover(*documents, shown=[str(rewriting.file) for rewriting in rewritings])


def _command() -> tuple[str, ...]:
    return own_command(Path(sys.executable))


_CONTEXT: Final = 2
_MAX_SHOWN_BYTES: Final = 4 * 1024 * 1024
"""Finding the secrets in a larger file takes too long."""
_MAX_LINE_LENGTH: Final = 2_000


class ChangedLines:
    """Prints the changed lines of files, in colors on a terminal, secrets covered."""

    def __init__(self, rewritings: Iterable[FileChange]) -> None:
        """`rewritings` are all changes that will be printed."""
        from rich.console import Console

        self._console = Console(soft_wrap=True, highlight=False)
        self._cover = _cover([each for each in rewritings if _size(each) <= _MAX_SHOWN_BYTES])

    def print(self, rewritings: Iterable[FileChange]) -> None:
        """Print the lines of these changes; of a large file, only its size."""
        from rich.text import Text

        for rewriting in rewritings:
            if _size(rewriting) > _MAX_SHOWN_BYTES:
                size = f"{_size(rewriting) / 1_000_000:.0f} MB, too large to show its lines"
                typer.echo(f"    {printable(str(rewriting.file))}: {size}")
                continue
            for line in _difference(rewriting, self._cover):
                cut = f"{line[:_MAX_LINE_LENGTH]}… ({len(line):,} characters)" if len(line) > _MAX_LINE_LENGTH else line
                self._console.print(Text(cut, style=_style(line)))


def _size(rewriting: FileChange) -> int:
    return max(len(rewriting.before or b""), len(rewriting.after or b""))


def _difference(rewriting: FileChange, cover: Callable[[str], str]) -> list[str]:
    """The lines that change, with those around them; only these are looked through for secrets: files can be large."""
    contents = (rewriting.before or b"", rewriting.after or b"")
    before, after = (content.decode("utf-8-sig", "replace").splitlines() for content in contents)
    same, last = _same(before, after), _same(before[::-1], after[::-1])
    start = max(0, same - _CONTEXT)
    end = max(0, min(last, len(before) - same, len(after) - same) - _CONTEXT)
    name = printable(str(rewriting.file))
    old, new = "nothing" if rewriting.before is None else name, "nothing" if rewriting.after is None else name
    parts = before[start : len(before) - end], after[start : len(after) - end]
    lines = unified_diff(*parts, old, new, lineterm="", n=_CONTEXT)
    shown = ["    " + ("…" if line.startswith("@@") else line.replace("\t", "    ")) for line in lines]
    return [printable(line) for line in cover("\n".join(shown)).splitlines()]


def _same(some: Sequence[str], others: Sequence[str]) -> int:
    """With how many equal lines both begin."""
    pairs = zip(some, others, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(some), len(others)))


def _style(line: str) -> str:
    mark = line.strip()[:1]
    return {"+": "green", "-": "red", "…": "dim"}.get(mark if line[4:5] == mark else "", "")


_STRING: Final = r'"(?:\\.|[^"\\\n])*"' + r"|'[^'\n]*'"
_TOKEN: Final = re.compile(
    rf"(?P<key>{_STRING}|[A-Za-z_][\w.-]*)(?P<sign>[ \t]*[:=][ \t]*)(?P<value>{_STRING}|[^\s,\[\]{{}}\"'#]+)|{_STRING}"
)
"""A key with its value, or a text, in JSON, YAML or TOML, also in a comment."""

_VARIABLE: Final = re.compile(r"((?:(?:Bearer|Basic|Token) )?(?:\$\{(?:env:)?\w+(?::-)?\}|\{env:\w+\}))")
_NOT_SECRET: Final = frozenset({"command", "args", "cwd", "type"})
_MIN_RANDOM_LENGTH: Final = 8
"""Minimum length of a secret under a name that does not suggest one: a client's history has many short texts."""


class Cover:
    """Masks secrets in lines of files: by the names that they are under, by their looks, and those of commands."""

    def __init__(self, *documents: Any, shown: Iterable[str] = ()) -> None:
        """`documents` are the files as they were read. What is `shown` is no secret."""
        found = {text for document in documents for text in _command_secrets(document)} - set(shown)
        escaped = {json.dumps(text, ensure_ascii=is_ascii)[1:-1] for text in found for is_ascii in (True, False)}
        self._redact = redaction.Redactor(found | escaped)

    def __call__(self, text: str) -> str:
        """Return the text with a mask for each secret."""
        parts = _VARIABLE.split(text)
        text = "".join(part if place % 2 else self._redact(part) for place, part in enumerate(parts))
        return _TOKEN.sub(lambda found: _mask_value(found) if found["key"] else _mask_random(found.group()), text)


def _mask_value(found: re.Match[str]) -> str:
    name, written = _meaning(found["key"]), found["value"]
    value, begin = _meaning(written), found["key"] + found["sign"]
    if name in _NOT_SECRET or "://" in value:
        return begin + written
    if redaction.holds_secret(name, re.sub(redaction.SCHEME, "", value)):
        return begin + _masked(written)
    literal = re.sub(redaction.REFERENCE, "", value)
    for secret in (
        *redaction.assigned_secrets(literal),
        *(each["value"] for each in re.finditer(redaction.AFTER_SCHEME, literal)),
    ):
        written = written.replace(secret, redaction.MASK)
    return begin + written


def _mask_random(written: str) -> str:
    text = _meaning(written)
    if len(text) < _MIN_RANDOM_LENGTH or any(part in text for part in (" ", "://", redaction.MASK)):
        return written
    return _masked(written) if redaction.looks_secret(text) else written


def _masked(written: str) -> str:
    quote = written[0] if written[0] in "\"'" else ""
    return f"{quote}{redaction.MASK}{quote}"


def _meaning(written: str) -> str:
    """Return the text that a value means, or the value where it is not JSON."""
    try:
        return str(json.loads(written)) if written.startswith('"') else written.strip("'")
    except ValueError:
        return written[1:-1]


def _command_secrets(value: Any) -> Iterator[str]:
    """Yield the secrets in command lines and URLs, at any depth."""
    if isinstance(value, Mapping):
        given = [each if isinstance(each, list) else [each] for each in map(value.get, ("command", "args"))]
        yield from redaction.secrets_of_command([word for words in given for word in words if isinstance(word, str)])
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _command_secrets(item)
    elif isinstance(value, str) and "://" in value:
        yield from redaction.secrets_of_url(value)
