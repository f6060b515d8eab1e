"""What is particular to Claude Code: servers by project in the user's file, and what is said of servers elsewhere."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from riglm.adapters.clients import json_members
from riglm.adapters.clients.cannot_change import CannotChange
from riglm.adapters.clients.claude_code_policy import Settings, is_ruled, obstacle, settings_files
from riglm.domain.installation import ClientServer, Place

_CLIENT = "claude-code"


def places_in(main: Place, wanted: Path | None) -> Iterator[Place]:
    """The servers that the user has for the work in one project, or in this one; they are in the user's file too."""
    for name, said in _projects(main.file).items():
        if (wanted is None or Path(name) == wanted) and _mapping(said.get("mcpServers")):
            path = ("projects", name, "mcpServers")
            yield Place(client=_CLIENT, file=main.file, path=path, project=Path(name))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where Claude Code keeps what it knows: the user's file, and directories of settings."""

    own_file: Path
    home: Path
    environment: Mapping[str, str]
    platform: str

    def settings(self, place: Place) -> list[Settings]:
        """The settings that hold where the servers of a place are used: in all projects, or in one."""
        user = Path(self.environment.get("CLAUDE_CONFIG_DIR") or self.home / ".claude")
        projects = [place.project] if place.project else [Path(name) for name in _projects(self.own_file)]
        return [Settings(file, _read(file)) for file in settings_files(user, projects, self.platform)]


def blocked(place: Place, servers: Collection[ClientServer], around: Surroundings) -> dict[str, str]:
    """Servers that stay for what is said of them elsewhere, and what that is."""
    settings = around.settings(place)
    found = {server.name: why for server in servers if (why := obstacle(server, settings))}
    return found | _switched_off(place, around.own_file)


def remarks(place: Place, names: Collection[str], entry: str, around: Surroundings) -> tuple[str, ...]:
    """What is said of these servers where tools are permitted and where servers are switched off by project."""
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
            found.append(f"switched off in {project} and not so behind riglm: {', '.join(off)}")
    if approved := sorted({*names} & _approved(place, around.own_file)):
        found.append(f"Claude Code may use {', '.join(approved)} (`enabledMcpjsonServers`): it asks again for {entry}")
    return tuple(found)


def _approved(place: Place, own_file: Path) -> set[str]:
    """Servers of a project's `.mcp.json` that its user has said yes to."""
    return {str(name) for said in _of_project(place, own_file) for name in _list(said.get("enabledMcpjsonServers"))}


def _of_project(place: Place, own_file: Path) -> list[Mapping[str, Any]]:
    """The file in which a user approves or rejects servers of a project's `.mcp.json`."""
    if place.project is None or place.file == own_file:
        return []
    settings = [_read(place.project / ".claude" / name) for name in ("settings.json", "settings.local.json")]
    return [_projects(own_file).get(str(place.project), {}), *settings]


def _switched_off(place: Place, own_file: Path) -> dict[str, str]:
    """Servers of a project's `.mcp.json` that its user does not want."""
    names = [name for said in _of_project(place, own_file) for name in _list(said.get("disabledMcpjsonServers"))]
    return dict.fromkeys(map(str, names), "it is switched off by `disabledMcpjsonServers`")


def _projects(file: Path) -> dict[str, Mapping[str, Any]]:
    found = _mapping(_read(file).get("projects"))
    return {name: said for name, said in found.items() if isinstance(said, Mapping)}


def _read(file: Path) -> Mapping[str, Any]:
    """Return the content of a file; empty if it cannot be read, which the code that changes it reports."""
    try:
        return json_members.values(file.read_text("utf-8-sig"))
    except (OSError, ValueError, CannotChange):
        return {}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
