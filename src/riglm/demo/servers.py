"""The servers of the demo: those that are bundled with riglm, and reference servers from npm."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from riglm.demo.agent import ROOT
from riglm.demo.server import DEFINITIONS

_VERSION: Final = "2026.8.31"
PACKAGES: Final = tuple(
    f"@modelcontextprotocol/server-{name}@{_VERSION}" for name in ("everything", "filesystem", "memory")
)
"""The packages of the demo, in the versions with which its sessions were tried."""

_OPTIONS: Final = ("--prefer-offline", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")


def install(directory: Path, timeout: float, packages: Sequence[str] = PACKAGES) -> Path | None:
    """Install packages below a directory and return that of their programs; None if npm is missing, late or fails."""
    if shutil.which("npx") is None or shutil.which("npm") is None:
        return None
    command = ["npm", "install", *_OPTIONS, "--prefix", str(directory), *packages]
    npm = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        is_done = npm.wait(timeout) == 0
    except subprocess.TimeoutExpired:
        is_done = False
    finally:
        if npm.poll() is None:
            os.killpg(npm.pid, signal.SIGKILL)
            npm.wait()
    return directory / "node_modules" / ".bin" if is_done else None


def bundled_servers() -> dict[str, dict[str, Any]]:
    """Return the bundled servers in the shape of `mcpServers`."""
    arguments = ["-m", "riglm.demo.server"]
    names = json.loads(DEFINITIONS.read_text("utf-8"))
    return {name: {"command": sys.executable, "args": [*arguments, name]} for name in names}


def npm_servers(programs: Path, directory: Path) -> dict[str, dict[str, Any]]:
    """Return the bundled servers with those from npm in the place of the ones that have the same tools.

    `directory` gets the files and the knowledge graph with which the bundled ones begin; ROOT is its path there.
    """
    definitions = json.loads(DEFINITIONS.read_text("utf-8"))
    for row in definitions["filesystem"]["tables"]["files"]["rows"]:
        file = directory / row["path"].removeprefix("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(row["content"], "utf-8")
    entities = definitions["memory"]["tables"]["entities"]["rows"]
    graph = directory / "memory.jsonl"
    graph.write_text("".join(json.dumps({"type": "entity", **row}) + "\n" for row in entities), "utf-8")
    root = directory / ROOT.removeprefix("/")
    return {
        **bundled_servers(),
        "everything": {"command": str(programs / "mcp-server-everything")},
        "filesystem": {"command": str(programs / "mcp-server-filesystem"), "args": [str(root)]},
        "memory": {"command": str(programs / "mcp-server-memory"), "env": {"MEMORY_FILE_PATH": str(graph)}},
    }
