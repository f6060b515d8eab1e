"""The project that a directory belongs to: its version-control root."""

import os
from pathlib import Path
from typing import Final

_DIRECTORIES: Final = (".git", ".hg", ".jj", ".svn")
_MAX_POINTER_BYTES: Final = 4_096


def project_root(directory: str) -> str:
    """Return what names the project of a directory, empty without version control.

    It is the nearest directory above with version control, whether or not the given one still exists. All worktrees of
    a Git repository, or workspaces of a Jujutsu one, are one project; a submodule is a separate project.
    """
    try:
        start = Path(os.path.realpath(directory))
    except (OSError, ValueError):  # the working directory was deleted, or this is no path
        return ""
    for above in (start, *start.parents):
        for name in _DIRECTORIES:
            if os.path.exists(above / name):  # noqa: PTH110  # `Path.exists` raises where access is denied
                return str(_repository(above, name))
    return ""


def _repository(root: Path, name: str) -> Path:
    """Return the repository of a root: the root itself, unless it is a worktree or submodule of another."""
    if name == ".git" and (text := _read(root / name)).startswith("gitdir:"):
        own = _resolved(root, text.removeprefix("gitdir:"))
        shared = _resolved(own, _read(own / "commondir") or ".")
    elif name == ".jj" and (text := _read(root / name / "repo")):
        shared = _resolved(root / name, text).parent
    else:
        return root
    if not os.path.isdir(shared):  # noqa: PTH112
        return root
    return shared.parent if shared.name == name else shared


def _resolved(base: Path, text: str) -> Path:
    return Path(os.path.realpath(base / text.strip()))


def _read(file: Path) -> str:
    """Return the text of a small file; empty if it is a directory or cannot be read."""
    try:
        with file.open(encoding="utf-8", errors="surrogateescape") as opened:
            return opened.read(_MAX_POINTER_BYTES).partition("\0")[0]
    except (OSError, ValueError):
        return ""
