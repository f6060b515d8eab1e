"""How each client writes servers down: one table has the differences between clients."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

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


Entry = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One client's way of writing.

    `pattern` finds the variables that it replaces, `variable` writes one. With `passes_all` servers see all
    variables that the client does; to others riglm's entry must name those that it needs. `entry` makes an entry of
    riglm's command line and of variables for it. `waits` are its words for how long it waits for a server, each with
    what holds where nothing is said.
    """

    pattern: re.Pattern[str]
    entry: Callable[[Sequence[str], Mapping[str, str]], Entry]
    variable: str = ""
    passes_all: bool = True
    waits: Mapping[str, float] = field(default_factory=dict)
    kinds: frozenset[str] = frozenset({"stdio", "http", "sse", "streamable-http", "streamableHttp", "streamable_http"})


def _plain(words: Sequence[str], env: Mapping[str, str]) -> Entry:
    return {"command": words[0], "args": list(words[1:]), **({"env": dict(env)} if env else {})}


def _typed(words: Sequence[str], env: Mapping[str, str]) -> Entry:
    return {"type": "stdio", **_plain(words, env)}


def _opencode(words: Sequence[str], env: Mapping[str, str]) -> Entry:
    return {"type": "local", "command": list(words), "enabled": True, **({"environment": dict(env)} if env else {})}


_BY_CLIENT: Final = {
    "claude-code": Dialect(pattern=SHELL, entry=_typed, variable="${%s:-}"),
    "claude-desktop": Dialect(pattern=NEVER, entry=_plain),
    "cursor": Dialect(pattern=EDITOR, entry=_plain, variable="${env:%s}", passes_all=False),
    "vscode": Dialect(pattern=EDITOR, entry=_typed, variable="${env:%s}"),
    "codex": Dialect(
        pattern=NEVER, entry=_plain, passes_all=False, waits={"startup_timeout_sec": 10, "tool_timeout_sec": 60}
    ),
    "gemini": Dialect(pattern=DOLLAR, entry=_plain, variable="$%s", passes_all=False, waits={"timeout": 600_000}),
    "opencode": Dialect(
        pattern=BRACES,
        entry=_opencode,
        variable="{env:%s}",
        waits={"timeout": 5_000},
        kinds=frozenset({"local", "remote"}),
    ),
    "zed": Dialect(pattern=NEVER, entry=_plain),
    "windsurf": Dialect(pattern=EDITOR, entry=_plain, variable="${env:%s}", passes_all=False),
    "cline": Dialect(pattern=EDITOR, entry=_plain, variable="${env:%s}", passes_all=False, waits={"timeout": 60}),
}


def dialect_of(client: str) -> Dialect:
    """The way in which a client writes."""
    return _BY_CLIENT[client]


CLIENTS: Final = (
    "claude-code", "claude-desktop", "cursor", "vscode", "codex", "gemini", "opencode", "zed", "windsurf", "cline",
)  # fmt: skip
"""The clients that riglm knows, by the names that `--client` takes."""

_EDITORS: Final = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")
_OPENCODE: Final = {"opencode.json": "opencode", "opencode.jsonc": "opencode-jsonc", "config.json": "opencode-config"}
_CLINE: Final = Path("globalStorage") / "saoudrizwan.claude-dev" / "settings" / "cline_mcp_settings.json"


@dataclass(frozen=True, slots=True)
class CandidatePath:
    """Where a client's file may be: `pattern` below `base`, with `*` for names of the user's choice.

    `name` identifies a place that exists only once.
    """

    client: str
    base: Path
    pattern: str
    path: tuple[str, ...] = ("mcpServers",)
    project: Path | None = None
    name: str = ""


def user_candidates(platform: str, environment: Mapping[str, str], home: Path) -> Iterator[CandidatePath]:
    """Where the user's own files may be. `platform` is as in `sys.platform`."""
    application_data = _application_data(platform, environment, home)
    # What follows the XDG rules does so on every platform, but for Zed on Windows.
    xdg = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    claude = Path(environment.get("CLAUDE_CONFIG_DIR") or home)
    yield CandidatePath("claude-code", claude, ".claude.json", name="claude-code")
    yield CandidatePath(
        "claude-desktop", application_data / "Claude", "claude_desktop_config.json", name="claude-desktop"
    )
    yield CandidatePath("cursor", home / ".cursor", "mcp.json", name="cursor")
    for editor in _EDITORS[:3]:
        user = application_data / editor / "User"
        yield CandidatePath("vscode", user, "mcp.json", ("servers",), name="vscode" if editor == "Code" else "")
        yield CandidatePath("vscode", user, "profiles/*/mcp.json", ("servers",))
    codex = Path(environment.get("CODEX_HOME") or home / ".codex")
    yield CandidatePath("codex", codex, "config.toml", ("mcp_servers",), name="codex")
    yield CandidatePath("gemini", home / ".gemini", "settings.json", name="gemini")
    for file in ("opencode.json", "opencode.jsonc", "config.json"):
        yield CandidatePath("opencode", xdg / "opencode", file, ("mcp",), name=_OPENCODE[file])
    zed = application_data / "Zed" if platform == "win32" else xdg / "zed"
    yield CandidatePath("zed", zed, "settings.json", ("context_servers",), name="zed")
    yield CandidatePath("windsurf", home / ".codeium" / "windsurf", "mcp_config.json", name="windsurf")
    for editor in _EDITORS:
        user = application_data / editor / "User"
        yield CandidatePath("cline", user, _CLINE.as_posix(), name="cline" if editor == "Code" else "")
    yield CandidatePath("cline", home / ".cline" / "data" / "settings", "cline_mcp_settings.json")


def project_candidates(project: Path) -> Iterator[CandidatePath]:
    """Where files may be that are for work in one directory alone."""
    for client, name, path in (
        ("claude-code", ".mcp.json", ("mcpServers",)),
        ("cursor", ".cursor/mcp.json", ("mcpServers",)),
        ("vscode", ".vscode/mcp.json", ("servers",)),
        ("codex", ".codex/config.toml", ("mcp_servers",)),
        ("gemini", ".gemini/settings.json", ("mcpServers",)),
        ("opencode", "opencode.json", ("mcp",)),
        ("opencode", "opencode.jsonc", ("mcp",)),
        ("zed", ".zed/settings.json", ("context_servers",)),
    ):
        yield CandidatePath(client, project, name, path, project)


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
