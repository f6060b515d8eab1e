"""The reference MCP servers from npm, installed for the time of the demo."""

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

_VERSION = "2026.8.31"
PACKAGES = tuple(f"@modelcontextprotocol/server-{name}@{_VERSION}" for name in ("everything", "filesystem", "memory"))
"""What is installed: the versions that the demo was tried with."""

_OPTIONS = ("--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")


def install(directory: Path, deadline_s: float, packages: Sequence[str] = PACKAGES) -> Path | None:
    """Install servers below a directory; where their programs are, or None when npm is missing, late or fails."""
    if shutil.which("npx") is None or shutil.which("npm") is None:
        return None
    command = ["npm", "install", *_OPTIONS, "--prefix", str(directory), *packages]
    npm = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        done = npm.wait(deadline_s) == 0
    except subprocess.TimeoutExpired:
        done = False
    finally:
        if npm.poll() is None:
            os.killpg(npm.pid, signal.SIGKILL)
            npm.wait()
    return directory / "node_modules" / ".bin" if done else None
