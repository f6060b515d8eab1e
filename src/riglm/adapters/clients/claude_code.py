"""What is particular to Claude Code: servers by project in the user's file, and what is said of servers elsewhere."""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from riglm.adapters.clients import json_members
from riglm.adapters.clients.cannot_change import CannotChange
from riglm.domain.installation import Place

_CLIENT = "claude-code"


def places_in(main: Place, wanted: Path | None) -> Iterator[Place]:
    """The servers that the user has for the work in one project, or in this one; they are in the user's file too."""
    for name, said in _projects(main.file).items():
        if (wanted is None or Path(name) == wanted) and _mapping(said.get("mcpServers")):
            path = ("projects", name, "mcpServers")
            yield Place(client=_CLIENT, file=main.file, path=path, project=Path(name))


def blocked(
    place: Place, names: Collection[str], own_file: Path, environment: Mapping[str, str], home: Path
) -> dict[str, str]:
    """Servers that stay for what is said of them elsewhere, and what that is."""
    settings = _settings(place, environment, home)
    found = {
        name: f"`permissions.{kind}` has rules for its tools by their names, which would change"
        for kind in ("deny", "ask")
        for name in names
        if _has_rule(name, kind, settings)
    }
    return found | _switched_off(place, own_file)


def remarks(
    place: Place, names: Collection[str], entry: str, own_file: Path, environment: Mapping[str, str], home: Path
) -> tuple[str, ...]:
    """What is said of these servers where tools are permitted and where servers are switched off by project."""
    found = []
    settings = _settings(place, environment, home)
    named = sorted(name for name in names if _has_rule(name, "allow", settings))
    if named:
        found.append(
            f"permission rules name the tools of {', '.join(named)} as mcp__{named[0]}__…: they are mcp__{entry}__… "
            "now, and Claude Code asks again"
        )
    for project, said in _projects(own_file).items() if place.project is None else ():
        off = sorted({*names} & {str(name) for name in _list(said.get("disabledMcpServers"))})
        if off:
            found.append(f"switched off in {project} and not so behind riglm: {', '.join(off)}")
    return tuple(found)


def _switched_off(place: Place, own_file: Path) -> dict[str, str]:
    """Servers of a project's `.mcp.json` that its user does not want."""
    if place.project is None or place.file == own_file:
        return {}
    said = _projects(own_file).get(str(place.project), {})
    more = _read(place.project / ".claude" / "settings.local.json")
    names = [*_list(said.get("disabledMcpjsonServers")), *_list(more.get("disabledMcpjsonServers"))]
    return dict.fromkeys(map(str, names), "it is switched off by `disabledMcpjsonServers`")


def _settings(place: Place, environment: Mapping[str, str], home: Path) -> list[Mapping[str, Any]]:
    """The permissions that hold where the servers of a place are used."""
    directories = [Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude")]
    if place.project is not None:
        directories.append(place.project / ".claude")
    files = [directory / name for directory in directories for name in ("settings.json", "settings.local.json")]
    return [_mapping(_read(file).get("permissions")) for file in files]


def _has_rule(name: str, kind: str, settings: Collection[Mapping[str, Any]]) -> bool:
    rule = re.compile(rf"mcp__{re.escape(re.sub('[^A-Za-z0-9_-]', '_', name))}(?:__|$)")
    return any(rule.match(str(said)) for permissions in settings for said in _list(permissions.get(kind)))


def _projects(file: Path) -> dict[str, Mapping[str, Any]]:
    found = _mapping(_read(file).get("projects"))
    return {name: said for name, said in found.items() if isinstance(said, Mapping)}


def _read(file: Path) -> Mapping[str, Any]:
    """What a file says; nothing where it cannot be read: whoever changes the file says so."""
    try:
        return json_members.values(file.read_text("utf-8-sig"))
    except (OSError, ValueError, CannotChange):
        return {}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
