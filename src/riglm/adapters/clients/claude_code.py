"""What is particular to Claude Code: servers by project in the user's file, and what is said of servers elsewhere."""

import fnmatch
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from riglm.adapters.clients import json_members
from riglm.adapters.clients.json_members import FileNotEditableError
from riglm.domain.client_setup import ClientServer, ConfigLocation

_NOBODY: Final = "4-name-that-no-server-has"


def names_server(pattern: str, name: str) -> bool:
    """Whether a regular expression means a server of this name, and does not mean all of them.

    One that cannot be read means whom it names.
    """
    try:
        expression = re.compile(pattern)
    except re.error:
        return re.search(rf"(?<![A-Za-z0-9-]){re.escape(name)}(?![A-Za-z0-9-])", pattern) is not None
    return expression.fullmatch(name) is not None and expression.fullmatch(_NOBODY) is None


def begins_with_server(wildcard: str, prefix: str) -> bool:
    """Whether names that a wildcard means begin with a server's prefix, and not those of all servers do.

    Only the part before the first `*` or `?` counts.
    """
    literal = re.split(r"[*?]", wildcard, maxsplit=1)[0]
    is_open = literal != wildcard
    return bool(literal) and (literal.startswith(prefix) or (is_open and prefix.startswith(literal)))


_MANAGED: Final = {
    "darwin": ("/Library/Application Support/ClaudeCode",),
    "win32": ("C:/Program Files/ClaudeCode", "C:/ProgramData/ClaudeCode"),
}
_MANAGED_ELSEWHERE: Final = ("/etc/claude-code",)
_SERVER: Final = re.compile(r"mcp__(?=(.+?)(?:__|$))")
_RULED: Final = "has rules for its tools by their names, which would change"


@dataclass(frozen=True, slots=True)
class ClaudeCodeSettings:
    """One file of settings as it was read."""

    file: Path
    values: Mapping[str, Any]

    def rules(self, kind: str) -> list[str]:
        """What is said under `permissions`: `allow`, `ask` or `deny`."""
        permissions = self.values.get("permissions")
        return _texts(permissions.get(kind)) if isinstance(permissions, Mapping) else []

    def matchers(self) -> Iterator[tuple[str, str]]:
        """The hooks that choose tools by their names: each one's event and expression."""
        hooks = self.values.get("hooks")
        for event, groups in hooks.items() if isinstance(hooks, Mapping) else ():
            for group in groups if isinstance(groups, list) else ():
                if isinstance(group, Mapping) and isinstance(group.get("matcher"), str):
                    yield str(event), group["matcher"]


def settings_files(user: Path, projects: Collection[Path], platform: str) -> list[Path]:
    """Where settings may be that hold for servers: the user's, those of projects, and those of an organisation."""
    found = []
    for directory in map(Path, _MANAGED.get(platform, _MANAGED_ELSEWHERE)):
        found += [directory / "managed-settings.json", *sorted(directory.glob("managed-settings.d/*.json"))]
    for directory in (user, *(project / ".claude" for project in projects)):
        found += [directory / "settings.json", directory / "settings.local.json"]
    return found


def obstacle(server: ClientServer, settings: Sequence[ClaudeCodeSettings]) -> str:
    """Why a server has to stay for what the settings say, or nothing."""
    for each in settings:
        if _is_listed(server, each.values.get("deniedMcpServers")):
            return f"`deniedMcpServers` in {each.file} forbids it"
        if isinstance(each.values.get("allowedMcpServers"), list):
            return f"`allowedMcpServers` in {each.file} names the servers that may be used, and riglm is not among them"
        for kind in ("deny", "ask"):
            if any(is_ruled(server.name, rule) for rule in each.rules(kind)):
                return f"`permissions.{kind}` {_RULED} ({each.file})"
        for event, matcher in each.matchers():
            if any(names_server(pattern, _plain(server.name)) for pattern in _SERVER.findall(matcher)):
                return f"the hook `{event}` chooses its tools by their names, which would change ({each.file})"
    return ""


def is_ruled(name: str, rule: str) -> bool:
    """Whether a rule of `permissions` is about the tools of a server, and not of those of any other as well."""
    found = re.match(r"mcp__([^(]+?)(?:__|\(|$)", rule)
    return found is not None and names_server(fnmatch.translate(found[1]), _plain(name))


def _is_listed(server: ClientServer, listed: Any) -> bool:
    for each in listed if isinstance(listed, list) else ():
        if not isinstance(each, Mapping):
            continue
        if each.get("serverName") == server.name:
            return True
        if server.starts and each.get("serverCommand") == list(server.starts):
            return True
        if server.url and fnmatch.fnmatchcase(server.url, str(each.get("serverUrl", ""))):
            return True
    return False


def _plain(name: str) -> str:
    """Return a server's name as it appears in the names of its tools."""
    return re.sub("[^A-Za-z0-9_-]", "_", name)


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


_CLIENT = "claude-code"


def places_in(main: ConfigLocation, wanted: Path | None) -> Iterator[ConfigLocation]:
    """The servers that the user has for the work in one project, or in this one; they are in the user's file too."""
    for name, said in _projects(main.file).items():
        if (wanted is None or Path(name) == wanted) and _mapping(said.get("mcpServers")):
            path = ("projects", name, "mcpServers")
            yield ConfigLocation(client=_CLIENT, file=main.file, path=path, project=Path(name))


@dataclass(frozen=True, slots=True)
class ClaudeCodePaths:
    """Where Claude Code keeps what it knows: the user's file, and directories of settings."""

    own_file: Path
    home: Path
    environment: Mapping[str, str]
    platform: str

    def settings(self, place: ConfigLocation) -> list[ClaudeCodeSettings]:
        """The settings that hold where the servers of a place are used: in all projects, or in one."""
        user = Path(self.environment.get("CLAUDE_CONFIG_DIR") or self.home / ".claude")
        projects = [place.project] if place.project else [Path(name) for name in _projects(self.own_file)]
        return [ClaudeCodeSettings(file, _read(file)) for file in settings_files(user, projects, self.platform)]


def blocked(place: ConfigLocation, servers: Collection[ClientServer], around: ClaudeCodePaths) -> dict[str, str]:
    """Servers that stay for what is said of them elsewhere, and what that is."""
    settings = around.settings(place)
    found = {server.name: why for server in servers if (why := obstacle(server, settings))}
    return found | _switched_off(place, around.own_file)


def remarks(place: ConfigLocation, names: Collection[str], entry: str, around: ClaudeCodePaths) -> tuple[str, ...]:
    """What is said of these servers where tools are permitted and where servers are disabled by project."""
    found = []
    allowed = [rule for each in around.settings(place) for rule in each.rules("allow")]
    named = sorted(name for name in names if any(is_ruled(name, rule) for rule in allowed))
    if named:
        found.append(
            f"permission rules name the tools of {', '.join(named)} as mcp__{named[0]}__…: they are mcp__{entry}__… "
            "now, and Claude Code asks again"
        )
    for project, said in _projects(around.own_file).items() if place.project is None else ():
        off = sorted({*names} & {str(name) for name in _list(said.get("disabledMcpServers"))})
        if off:
            found.append(f"disabled in {project} and not so behind riglm: {', '.join(off)}")
    if approved := sorted({*names} & _approved(place, around.own_file)):
        found.append(f"Claude Code may use {', '.join(approved)} (`enabledMcpjsonServers`): it asks again for {entry}")
    return tuple(found)


def _approved(place: ConfigLocation, own_file: Path) -> set[str]:
    """Servers of a project's `.mcp.json` that its user has said yes to."""
    return {str(name) for said in _of_project(place, own_file) for name in _list(said.get("enabledMcpjsonServers"))}


def _of_project(place: ConfigLocation, own_file: Path) -> list[Mapping[str, Any]]:
    """The file in which a user approves or rejects servers of a project's `.mcp.json`."""
    if place.project is None or place.file == own_file:
        return []
    settings = [_read(place.project / ".claude" / name) for name in ("settings.json", "settings.local.json")]
    return [_projects(own_file).get(str(place.project), {}), *settings]


def _switched_off(place: ConfigLocation, own_file: Path) -> dict[str, str]:
    """Servers of a project's `.mcp.json` that its user does not want."""
    names = [name for said in _of_project(place, own_file) for name in _list(said.get("disabledMcpjsonServers"))]
    return dict.fromkeys(map(str, names), "it is disabled by `disabledMcpjsonServers`")


def _projects(file: Path) -> dict[str, Mapping[str, Any]]:
    found = _mapping(_read(file).get("projects"))
    return {name: said for name, said in found.items() if isinstance(said, Mapping)}


def _read(file: Path) -> Mapping[str, Any]:
    """Return the content of a file; empty if it cannot be read, which the code that changes it reports."""
    try:
        return json_members.values(file.read_text("utf-8-sig"))
    except (OSError, ValueError, FileNotEditableError):
        return {}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def ruled(place: ConfigLocation, names: Collection[str], documents: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Servers that have to stay for what these files of their client say, and what that is."""
    if place.client == "opencode":
        rules = {rule for document in documents for rule in _rules_of_opencode(document)}
        found = [name for name in names if any(begins_with_server(rule, f"{name}_") for rule in rules)]
        return dict.fromkeys(
            found, "`tools` or `permission` has rules for its tools by their names, which would change"
        )
    if place.client == "zed":
        return {name: why for document in documents for name, why in _rules_of_zed(document, names)}
    if place.client == "crush":
        matchers = [str(hook) for document in documents for hook in _mapping(document.get("hooks")).values()]
        found = [name for name in names if any(f"mcp_{name}" in matcher for matcher in matchers)]
        return dict.fromkeys(found, "`hooks` has rules for its tools by their names, which would change")
    if place.client not in {"gemini", "qwen"}:
        return {}
    lists = [_mapping(document.get("mcp")) for document in documents]
    if any(isinstance(each.get("allowed"), list) for each in lists):
        return dict.fromkeys(names, "`mcp.allowed` names the servers that may be used, and riglm is not among them")
    excluded = [str(name) for each in lists for name in each.get("excluded") or ()]
    return dict.fromkeys(excluded, "`mcp.excluded` switches it off")


def _rules_of_opencode(document: Mapping[str, Any]) -> Iterator[str]:
    agents = [agent for key in ("agent", "mode") for agent in _mapping(document.get(key)).values()]
    for said in (document, *agents):
        for key in ("tools", "permission"):
            yield from map(str, _mapping(_mapping(said).get(key)))


def _rules_of_zed(document: Mapping[str, Any], names: Collection[str]) -> Iterator[tuple[str, str]]:
    agent = _mapping(document.get("agent"))
    for key, profile in _mapping(agent.get("profiles")).items():
        for name in _mapping(_mapping(profile).get("context_servers")):
            yield str(name), f"`agent.profiles.{key}` chooses its tools by its name, which would change"
    for rule in _mapping(_mapping(agent.get("tool_permissions")).get("tools")):
        for name in names:
            if str(rule).startswith(f"mcp:{name}:"):
                yield name, "`agent.tool_permissions` has rules for its tools by its name, which would change"
