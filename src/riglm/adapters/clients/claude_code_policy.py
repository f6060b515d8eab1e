"""Claude Code's settings for servers: which are permitted, and which rules and hooks name them."""

import fnmatch
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from riglm.adapters.clients.tool_patterns import names_server
from riglm.domain.installation import ClientServer

_MANAGED: Final = {
    "darwin": ("/Library/Application Support/ClaudeCode",),
    "win32": ("C:/Program Files/ClaudeCode", "C:/ProgramData/ClaudeCode"),
}
_MANAGED_ELSEWHERE: Final = ("/etc/claude-code",)
_SERVER: Final = re.compile(r"mcp__(?=(.+?)(?:__|$))")
_RULED: Final = "has rules for its tools by their names, which would change"


@dataclass(frozen=True, slots=True)
class Settings:
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


def obstacle(server: ClientServer, settings: Sequence[Settings]) -> str:
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
