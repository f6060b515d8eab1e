"""Where clients keep their servers and how they write them, by the table in `riglm.domain.client_support`."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from riglm.domain import client_support

_OURS: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(?::-[^}]*)?\}")
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"

SHELL: Final = re.compile(rf"\$\{{(?P<name>{_NAME})(?::-(?P<default>[^}}]*))?\}}")
"""`${VAR}` and `${VAR:-default}`: Claude Code."""

EDITOR: Final = re.compile(rf"\$\{{env:(?P<name>{_NAME})\}}|\$\{{(?P<other>[^}}]*)\}}")
"""`${env:VAR}`, and what only the editor knows: VS Code, Cursor, Windsurf, Cline."""

DOLLAR: Final = re.compile(rf"\$\{{(?P<name>{_NAME})(?::-(?P<default>[^}}]*))?\}}|\$(?P<bare>{_NAME})")
"""`$VAR` and `${VAR}`: Gemini CLI."""

BRACES: Final = re.compile(rf"\{{env:(?P<name>{_NAME})\}}|\{{(?P<other>(?:env|file):[^}}]*)\}}")
"""`{env:VAR}`, and `{file:PATH}`: opencode."""

NEVER: Final = re.compile(r"(?!)")
"""Nothing is replaced: Claude Desktop, Codex, Zed."""


class UntranslatableError(Exception):
    """The text says something that riglm could not say; the message is what."""


@dataclass(slots=True)
class VariableTranslator:
    """Translates the texts of one server, and notes which variables they name.

    Each variable gets a default where it has none: that it is not set then fails the server that needs it, and not
    riglm with all others.
    """

    pattern: re.Pattern[str]
    home: Path
    project: Path | None
    separator: str = "/"
    variables: dict[str, None] = field(default_factory=dict)

    def __call__(self, value: Any, unset: Callable[[str, str, str], str] = lambda *_: "") -> Any:
        """The value with the variables of all its texts translated.

        `unset` makes the default of one without: from its name, and from what is written before and behind it.

        Raises:
            Untranslatable: a text names what only the client knows, or holds what riglm would take for a variable.
        """
        if isinstance(value, str):
            return self._text(value, unset)
        if isinstance(value, list):
            return [self(item, unset) for item in value]
        if isinstance(value, Mapping):
            return {key: self(item, unset) for key, item in value.items()}
        return value

    def _text(self, text: str, unset: Callable[[str, str, str], str]) -> str:
        parts, place = [], 0
        for found in self.pattern.finditer(text):
            parts += [self._plain(text[place : found.start()]), self._variable(found, unset)]
            place = found.end()
        return "".join([*parts, self._plain(text[place:])])

    def _variable(self, found: re.Match[str], unset: Callable[[str, str, str], str]) -> str:
        groups = found.groupdict()
        if groups.get("other") is not None:
            return self._known_place(found)
        name = groups["name"] or groups["bare"]
        self.variables[name] = None
        default = groups.get("default") or unset(name, found.string[: found.start()], found.string[found.end() :])
        return f"${{{name}:-{default}}}"

    def _known_place(self, found: re.Match[str]) -> str:
        known: dict[str, Callable[[], str]] = {
            "userHome": lambda: str(self.home),
            "pathSeparator": lambda: self.separator,
            "/": lambda: self.separator,
        }
        if self.project is not None:
            project = self.project
            known |= {"workspaceFolder": lambda: str(project), "workspaceFolderBasename": lambda: project.name}
        if found["other"] not in known:
            raise UntranslatableError(f"it names {found.group()}, which only the client can fill in")
        return known[found["other"]]()

    def _plain(self, text: str) -> str:
        if found := _OURS.search(text):
            raise UntranslatableError(f"the client takes {found.group()} as it is written, and riglm would replace it")
        return text


_PATTERNS: Final = {"none": NEVER, "shell": SHELL, "editor": EDITOR, "dollar": DOLLAR, "braces": BRACES}

FORMATS: Final = {known.key: known.format for known in client_support.CLIENTS if known.format is not None}
"""The clients that `riglm init` sets up, by the names that `--client` takes."""


def variable_pattern(client: str) -> re.Pattern[str]:
    """Return the pattern of the variables that a client replaces."""
    return _PATTERNS[FORMATS[client].variables]


def entry_of(client: str, words: Sequence[str], variables: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
    """Return a client's entry for a command line; `variables` are passed to the command where the client does not."""
    form = FORMATS[client]
    passed = {} if form.passes_all or not form.variable else {name: form.variable % name for name in variables}
    env = {**passed, **env}
    if form.entry == "opencode":
        entry: dict[str, Any] = {"type": "local", "command": list(words), "enabled": True}
        return entry | ({"environment": env} if env else {})
    entry = {"type": "stdio"} if form.entry == "typed" else {}
    entry |= {"command": words[0], "args": list(words[1:])} | ({"env": env} if env else {})
    return entry | ({form.variable_names: sorted(variables)} if form.variable_names and variables else {})


@dataclass(frozen=True, slots=True)
class CandidatePath:
    """Where a client's file may be: `pattern` below `base`, with `*` for names of the user's choice.

    `name` identifies a place that exists only once.
    """

    client: str
    base: Path
    pattern: str
    path: tuple[str, ...]
    project: Path | None = None
    name: str = ""


def user_candidates(platform: str, environment: Mapping[str, str], home: Path) -> Iterator[CandidatePath]:
    """Where the user's own files may be, Claude Code's first. `platform` is as in `sys.platform`."""
    app = _application_data(platform, environment, home)
    # What follows the XDG rules does so on every platform, but for Zed on Windows.
    xdg = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    bases = {
        "{home}": home,
        "{app}": app,
        "{xdg}": xdg,
        "{zed}": app / "Zed" if platform == "win32" else xdg / "zed",
        "{claude}": Path(environment.get("CLAUDE_CONFIG_DIR") or home),
        "{codex}": Path(environment.get("CODEX_HOME") or home / ".codex"),
    }
    for client, form in FORMATS.items():
        for file, name in form.files.items():
            base, _, pattern = file.partition("/")
            yield CandidatePath(client, bases[base], pattern, (form.key,), name=name)


def project_candidates(project: Path) -> Iterator[CandidatePath]:
    """Where files may be that are for work in one directory alone."""
    for client, form in FORMATS.items():
        for file in form.project_files:
            yield CandidatePath(client, project, file, (form.key,), project)


def _application_data(platform: str, environment: Mapping[str, str], home: Path) -> Path:
    if platform == "win32":
        return Path(environment.get("APPDATA") or home / "AppData" / "Roaming")
    if platform == "darwin":
        return home / "Library" / "Application Support"
    return Path(environment.get("XDG_CONFIG_HOME") or home / ".config")


_PASSING = ("archive-v0", "environments-v2")


def own_command(
    executable: Path,
    which: Callable[[str], str | None],
    is_file: Callable[[Path], bool],
    same: Callable[[Path, Path], bool],
) -> tuple[str, ...]:
    """The command line of the riglm that this interpreter runs.

    What `uvx` or `pipx run` unpacked for one run is started by them again: their cache may be emptied at any time.
    """
    parts = executable.parts
    if any(part in parts for part in _PASSING) and (uvx := which("uvx")):
        return (uvx, "riglm")
    if "pipx" in parts and any("cache" in part for part in parts) and (pipx := which("pipx")):
        return (pipx, "run", "riglm")
    suffix = ".exe" if executable.suffix.lower() == ".exe" else ""
    beside = executable.with_name(f"riglm{suffix}")
    if not is_file(beside):
        return (str(executable), "-m", "riglm")
    known = which("riglm")
    return (known,) if known and Path(known).is_absolute() and same(Path(known), beside) else (str(beside),)
