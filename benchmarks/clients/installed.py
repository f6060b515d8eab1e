"""Claude Code, at a pinned version."""

import shutil
from pathlib import Path
from typing import Final

from benchmarks.cache import InstallationFailed, installation, run

VERSION: Final = "2.1.330"


def claude_code() -> Path:
    """The program, installed by npm if it is not there yet.

    Raises:
        InstallationFailed: there is no npm, or it failed.
    """
    directory = installation("claude-code", VERSION, _install)
    found = sorted(directory.glob("node_modules/@anthropic-ai/claude-code-*/claude"))
    if not found:
        raise InstallationFailed(f"Claude Code {VERSION} has no program for this machine")
    return found[0]


def _install(directory: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise InstallationFailed("Claude Code is installed by npm: install Node first")
    package = f"@anthropic-ai/claude-code@{VERSION}"
    run(npm, "install", "--ignore-scripts", "--no-fund", "--no-audit", "--prefix", str(directory), package)
