"""Rules of clients about their servers, by which a server must stay, or which riglm changes.

Claude Code has settings in several files, and servers by project in the user's file.
"""

import fnmatch
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from riglm.domain.client_setup import ClientServer, ConfigLocation

_NO_SERVER: Final = "4-name-that-no-server-has"
_RULED: Final = "has rules for its tools by their names, which would change"
_SERVER: Final = re.compile(r"mcp__(?=(.+?)(?:__|$))")
_MANAGED: Final = {
    "darwin": ("/Library/Application Support/ClaudeCode",),
    "win32": ("C:/Program Files/ClaudeCode", "C:/ProgramData/ClaudeCode"),
}


def find_obstacles(
    place: ConfigLocation, names: Collection[str], documents: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """Return the servers that must stay for what files of their client say, and what that is."""
    match place.client:
        case "opencode":
            rules = {rule for document in documents for rule in _opencode_rules(document)}
            found = [name for name in names if any(_begins_with(rule, f"{name}_") for rule in rules)]
            return dict.fromkeys(found, f"`tools` or `permission` {_RULED}")
        case "zed":
            return {name: why for document in documents for name, why in _zed_rules(document, names)}
        case "crush":
            matchers = [str(hook) for each in documents for hook in _mapping(each.get("hooks")).values()]
            found = [name for name in names if any(f"mcp_{name}" in matcher for matcher in matchers)]
            return dict.fromkeys(found, f"`hooks` {_RULED}")
        case "gemini" | "qwen":
            lists = [_mapping(document.get("mcp")) for document in documents]
            if any(isinstance(each.get("allowed"), list) for each in lists):
                why = "`mcp.allowed` names the servers that may be used, and riglm is not among them"
                return dict.fromkeys(names, why)
            excluded = [str(name) for each in lists for name in each.get("excluded") or ()]
            return dict.fromkeys(excluded, "`mcp.excluded` switches it off")
    return {}


def _opencode_rules(document: Mapping[str, Any]) -> Iterator[str]:
    agents = [agent for key in ("agent", "mode") for agent in _mapping(document.get(key)).values()]
    for each in (document, *agents):
        for key in ("tools", "permission"):
            yield from map(str, _mapping(_mapping(each).get(key)))


def _zed_rules(document: Mapping[str, Any], names: Collection[str]) -> Iterator[tuple[str, str]]:
    agent = _mapping(document.get("agent"))
    for key, profile in _mapping(agent.get("profiles")).items():
        for name in _mapping(_mapping(profile).get("context_servers")):
            yield str(name), f"`agent.profiles.{key}` chooses its tools by its name, which would change"
    for rule in _mapping(_mapping(agent.get("tool_permissions")).get("tools")):
        for name in names:
            if str(rule).startswith(f"mcp:{name}:"):
                yield name, "`agent.tool_permissions` has rules for its tools by its name, which would change"


def _begins_with(wildcard: str, prefix: str) -> bool:
    """True if the names that a wildcard means begin with a server's prefix, and not those of all servers do.

    Only the part before the first `*` or `?` counts.
    """
    literal = re.split(r"[*?]", wildcard, maxsplit=1)[0]
    is_open = literal != wildcard
    return bool(literal) and (literal.startswith(prefix) or (is_open and prefix.startswith(literal)))


@dataclass(frozen=True, slots=True)
class ClaudeCodeRules:
    """Rules of Claude Code about servers; `read` returns the content of a JSON file, empty if it is unreadable."""

    own_file: Path
    directory: Path
    platform: str
    read: Callable[[Path], Mapping[str, Any]]

    def places(self, wanted: Path | None) -> Iterator[ConfigLocation]:
        """Yield the servers that the user has for the work in any project, or in this one, in the user's file."""
        for name, said in self._projects().items():
            if (wanted is None or Path(name) == wanted) and _mapping(said.get("mcpServers")):
                path = ("projects", name, "mcpServers")
                yield ConfigLocation(client="claude-code", file=self.own_file, path=path, project=Path(name))

    def find_obstacles(self, place: ConfigLocation, servers: Collection[ClientServer]) -> dict[str, str]:
        """Return the servers that must stay, and why."""
        settings = self._settings(place)
        found = {server.name: why for server in servers if (why := _obstacle(server, settings))}
        disabled = [name for each in self._approvals(place) for name in _texts(each.get("disabledMcpjsonServers"))]
        return found | dict.fromkeys(disabled, "it is disabled by `disabledMcpjsonServers`")

    def remarks(self, place: ConfigLocation, names: Collection[str], entry: str) -> tuple[str, ...]:
        """Return what changes for the user if these servers move behind riglm's entry of this name."""
        found = []
        allowed = [rule for settings in self._settings(place).values() for rule in _rules(settings, "allow")]
        named = sorted(name for name in names if any(_is_ruled(name, rule) for rule in allowed))
        if named:
            found.append(
                f"permission rules name the tools of {', '.join(named)} as mcp__{named[0]}__…: they are "
                f"mcp__{entry}__… now, and Claude Code asks again"
            )
        for project, said in self._projects().items() if place.project is None else ():
            if off := sorted({*names}.intersection(_texts(said.get("disabledMcpServers")))):
                found.append(f"disabled in {project} and not so behind riglm: {', '.join(off)}")
        approved = {name for each in self._approvals(place) for name in _texts(each.get("enabledMcpjsonServers"))}
        if named := sorted(approved.intersection(names)):
            found.append(f"Claude Code may use {', '.join(named)} (`enabledMcpjsonServers`): it asks again for {entry}")
        return tuple(found)

    def _projects(self) -> dict[str, Mapping[str, Any]]:
        found = _mapping(self.read(self.own_file).get("projects"))
        return {name: said for name, said in found.items() if isinstance(said, Mapping)}

    def _approvals(self, place: ConfigLocation) -> list[Mapping[str, Any]]:
        """Return the files in which a user approves or rejects servers of a project's `.mcp.json`."""
        if place.project is None or place.file == self.own_file:
            return []
        settings = [self.read(place.project / ".claude" / name) for name in ("settings.json", "settings.local.json")]
        return [self._projects().get(str(place.project), {}), *settings]

    def _settings(self, place: ConfigLocation) -> dict[Path, Mapping[str, Any]]:
        """Return the settings that hold where servers are used: an organization's, the user's and those of projects."""
        projects = [place.project] if place.project else [Path(name) for name in self._projects()]
        files = []
        for directory in map(Path, _MANAGED.get(self.platform, ("/etc/claude-code",))):
            files += [directory / "managed-settings.json", *sorted(directory.glob("managed-settings.d/*.json"))]
        for directory in (self.directory, *(project / ".claude" for project in projects)):
            files += [directory / "settings.json", directory / "settings.local.json"]
        return {file: self.read(file) for file in files}


def _obstacle(server: ClientServer, settings: Mapping[Path, Mapping[str, Any]]) -> str:
    """Return why a server must stay for what the settings say, or nothing."""
    for file, values in settings.items():
        if _is_listed(server, values.get("deniedMcpServers")):
            return f"`deniedMcpServers` in {file} forbids it"
        if isinstance(values.get("allowedMcpServers"), list):
            return f"`allowedMcpServers` in {file} names the servers that may be used, and riglm is not among them"
        for kind in ("deny", "ask"):
            if any(_is_ruled(server.name, rule) for rule in _rules(values, kind)):
                return f"`permissions.{kind}` {_RULED} ({file})"
        for event, matcher in _matchers(values):
            if any(_names_server(pattern, _plain(server.name)) for pattern in _SERVER.findall(matcher)):
                return f"the hook `{event}` chooses its tools by their names, which would change ({file})"
    return ""


def _rules(settings: Mapping[str, Any], kind: str) -> list[str]:
    """Return the rules under `permissions`: `allow`, `ask` or `deny`."""
    return _texts(_mapping(settings.get("permissions")).get(kind))


def _matchers(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the hooks that choose tools by their names: each one's event and expression."""
    for event, groups in _mapping(settings.get("hooks")).items():
        for group in groups if isinstance(groups, list) else ():
            if isinstance(group, Mapping) and isinstance(group.get("matcher"), str):
                yield str(event), group["matcher"]


def _is_listed(server: ClientServer, listed: Any) -> bool:
    for each in listed if isinstance(listed, list) else ():
        if not isinstance(each, Mapping):
            continue
        is_named = each.get("serverName") == server.name
        if is_named or (server.starts and each.get("serverCommand") == list(server.starts)):
            return True
        if server.url and fnmatch.fnmatchcase(server.url, str(each.get("serverUrl", ""))):
            return True
    return False


def _is_ruled(name: str, rule: str) -> bool:
    """True if a rule of `permissions` is about the tools of a server, and not of those of any other as well."""
    found = re.match(r"mcp__([^(]+?)(?:__|\(|$)", rule)
    return found is not None and _names_server(fnmatch.translate(found[1]), _plain(name))


def _names_server(pattern: str, name: str) -> bool:
    """True if a regular expression means a server of this name, and does not mean all of them.

    One that cannot be read means whom it names.
    """
    try:
        expression = re.compile(pattern)
    except re.error:
        return re.search(rf"(?<![A-Za-z0-9-]){re.escape(name)}(?![A-Za-z0-9-])", pattern) is not None
    return expression.fullmatch(name) is not None and expression.fullmatch(_NO_SERVER) is None


def _plain(name: str) -> str:
    """Return a server's name as it appears in the names of its tools."""
    return re.sub("[^A-Za-z0-9_-]", "_", name)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
