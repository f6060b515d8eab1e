"""Clients from npm, at pinned versions."""

import shutil
from pathlib import Path
from typing import Final

from benchmarks.cache import InstallationFailed, installation, run

PACKAGE: Final = "@anthropic-ai/claude-code"
VERSION: Final = "2.1.330"


def claude_code() -> Path:
    """The program of Claude Code, installed by npm if it is not there yet.

    Raises:
        InstallationFailed: there is no npm, or it failed.
    """
    return program(installed(PACKAGE, VERSION))


def installed(package: str, version: str) -> Path:
    """The directory of a package, installed by npm if it is not there yet.

    Raises:
        InstallationFailed: there is no npm, or it failed.
    """

    def install(directory: Path) -> None:
        npm = shutil.which("npm")
        if npm is None:
            raise InstallationFailed(f"{package} is installed by npm: install Node first")
        run(npm, "install", "--no-fund", "--no-audit", "--prefix", str(directory), f"{package}@{version}")

    directory = installation(package.rpartition("/")[2], version, install)
    return directory / "node_modules" / package


def program(package: Path) -> Path:
    """The program of an installed Claude Code.

    Raises:
        InstallationFailed: it has none for this machine.
    """
    found = sorted(package.parent.glob(f"{package.name}-*/claude"))
    if not found:
        raise InstallationFailed(f"Claude Code {VERSION} has no program for this machine")
    return found[0]
