"""Variables in clients' files, written as riglm writes them: what they hold is looked up at every start, never here."""

import re
from collections.abc import Callable, Mapping
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


class Untranslatable(Exception):
    """The text says something that riglm could not say; the message is what."""


@dataclass(slots=True)
class References:
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
            raise Untranslatable(f"it names {found.group()}, which only the client can fill in")
        return known[found["other"]]()

    def _plain(self, text: str) -> str:
        if found := _OURS.search(text):
            raise Untranslatable(f"the client takes {found.group()} as it is written, and riglm would replace it")
        return text
