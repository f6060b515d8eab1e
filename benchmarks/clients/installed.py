"""Claude Code, at a pinned version."""

import shutil
from pathlib import Path
from typing import Final

from benchmarks.cache import InstallationFailed, installation, run

PACKAGE: Final = "@anthropic-ai/claude-code"
VERSION: Final = "2.1.330"


def claude_code() -> Path:
    """The program, installed by npm if it is not there yet.

    Raises:
        InstallationFailed: there is no npm, or it failed.
    """
    directory = installation("claude-code", VERSION, _install)
    return program(directory / "node_modules" / PACKAGE)


def program(package: Path) -> Path:
    """The program of an installed package.

    Raises:
        InstallationFailed: it has none for this machine.
    """
    found = sorted(package.parent.glob(f"{package.name}-*/claude"))
    if not found:
        raise InstallationFailed(f"Claude Code {VERSION} has no program for this machine")
    return found[0]


def _install(directory: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise InstallationFailed("Claude Code is installed by npm: install Node first")
    package = f"{PACKAGE}@{VERSION}"
    run(npm, "install", "--ignore-scripts", "--no-fund", "--no-audit", "--prefix", str(directory), package)
