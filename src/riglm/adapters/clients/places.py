"""Where clients keep their servers: a matter of the platform, the environment and the home directory alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CLIENTS: Final = (
    "claude-code", "claude-desktop", "cursor", "vscode", "codex", "gemini", "opencode", "zed", "windsurf", "cline",
)  # fmt: skip
"""The clients that riglm knows, by the names that `--client` takes."""

_EDITORS: Final = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")
_OPENCODE: Final = {"opencode.json": "opencode", "opencode.jsonc": "opencode-jsonc", "config.json": "opencode-config"}
_CLINE: Final = Path("globalStorage") / "saoudrizwan.claude-dev" / "settings" / "cline_mcp_settings.json"


@dataclass(frozen=True, slots=True)
class Candidate:
    """Where a client's file may be: `pattern` below `base`, with `*` for names of the user's choice.

    `name` identifies a place that exists only once.
    """

    client: str
    base: Path
    pattern: str
    path: tuple[str, ...] = ("mcpServers",)
    project: Path | None = None
    name: str = ""


def user_candidates(platform: str, environment: Mapping[str, str], home: Path) -> Iterator[Candidate]:
    """Where the user's own files may be. `platform` is as in `sys.platform`."""
    application_data = _application_data(platform, environment, home)
    # What follows the XDG rules does so on every platform, but for Zed on Windows.
    xdg = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    claude = Path(environment.get("CLAUDE_CONFIG_DIR") or home)
    yield Candidate("claude-code", claude, ".claude.json", name="claude-code")
    yield Candidate("claude-desktop", application_data / "Claude", "claude_desktop_config.json", name="claude-desktop")
    yield Candidate("cursor", home / ".cursor", "mcp.json", name="cursor")
    for editor in _EDITORS[:3]:
        user = application_data / editor / "User"
        yield Candidate("vscode", user, "mcp.json", ("servers",), name="vscode" if editor == "Code" else "")
        yield Candidate("vscode", user, "profiles/*/mcp.json", ("servers",))
    codex = Path(environment.get("CODEX_HOME") or home / ".codex")
    yield Candidate("codex", codex, "config.toml", ("mcp_servers",), name="codex")
    yield Candidate("gemini", home / ".gemini", "settings.json", name="gemini")
    for file in ("opencode.json", "opencode.jsonc", "config.json"):
        yield Candidate("opencode", xdg / "opencode", file, ("mcp",), name=_OPENCODE[file])
    zed = application_data / "Zed" if platform == "win32" else xdg / "zed"
    yield Candidate("zed", zed, "settings.json", ("context_servers",), name="zed")
    yield Candidate("windsurf", home / ".codeium" / "windsurf", "mcp_config.json", name="windsurf")
    for editor in _EDITORS:
        user = application_data / editor / "User"
        yield Candidate("cline", user, _CLINE.as_posix(), name="cline" if editor == "Code" else "")
    yield Candidate("cline", home / ".cline" / "data" / "settings", "cline_mcp_settings.json")


def project_candidates(project: Path) -> Iterator[Candidate]:
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
        yield Candidate(client, project, name, path, project)


def _application_data(platform: str, environment: Mapping[str, str], home: Path) -> Path:
    if platform == "win32":
        return Path(environment.get("APPDATA") or home / "AppData" / "Roaming")
    if platform == "darwin":
        return home / "Library" / "Application Support"
    return Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
