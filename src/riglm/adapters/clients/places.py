"""Where clients keep their files, how these are replaced, and how they start this riglm."""

import contextlib
import os
import shlex
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from riglm.adapters.private_files import private_draft
from riglm.domain.client_setup import ConfigLocation
from riglm.domain.client_support import CLIENTS, FORMATS
from riglm.domain.errors import ConflictError, failed_write


class Candidate(NamedTuple):
    """Where a client's file may be: `pattern` below `base`, with `*` for names of the user's choice.

    `name` identifies a place that exists only once.
    """

    client: str
    base: Path
    pattern: str
    name: str = ""


def list_candidates(
    project: Path | None, *, platform: str, environment: Mapping[str, str], home: Path
) -> Iterator[Candidate]:
    """Yield where the user's own files may be, Claude Code's first, or those for work in one directory alone.

    `platform` is as in `sys.platform`.
    """
    bases = _bases(platform, environment, home)
    for client, form in FORMATS.items():
        if project is not None:
            yield from (Candidate(client, project, file) for file in form.project_files)
            continue
        for file, name in form.files.items():
            base, _, pattern = file.partition("/")
            yield Candidate(client, bases[base], pattern, name)


def find_files(
    project: Path | None, *, platform: str, environment: Mapping[str, str], home: Path
) -> list[ConfigLocation]:
    """Return the places of servers in files that exist: the user's own, or those of a project."""
    found = list_candidates(project, platform=platform, environment=environment, home=home)
    return [
        ConfigLocation(client=each.client, file=file, path=(FORMATS[each.client].key,), project=project, name=each.name)
        for each in found
        for file in sorted(each.base.glob(each.pattern))
        if file.is_file()
    ]


def unedited_files(platform: str, environment: Mapping[str, str], home: Path) -> dict[str, Path]:
    """Return the files with servers that riglm does not edit, by the title of the client."""
    bases = _bases(platform, environment, home)
    files = {known.title: known.unedited.partition("/") for known in CLIENTS if known.unedited}
    return {title: bases[base] / name for title, (base, _, name) in files.items()}


def home_of(environment: Mapping[str, str]) -> Path:
    """Return the user's home directory."""
    named = environment.get("USERPROFILE" if os.name == "nt" else "HOME")
    return Path(named) if named else Path.home()


def _bases(platform: str, environment: Mapping[str, str], home: Path) -> dict[str, Path]:
    # What follows the XDG rules does so on every platform, but for Zed on Windows.
    xdg = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    roaming = Path(environment.get("APPDATA") or home / "AppData" / "Roaming")
    app = {"win32": roaming, "darwin": home / "Library" / "Application Support"}.get(platform, xdg)
    return {
        "{home}": home,
        "{app}": app,
        "{xdg}": xdg,
        "{zed}": app / "Zed" if platform == "win32" else xdg / "zed",
        "{claude}": Path(environment.get("CLAUDE_CONFIG_DIR") or home),
        "{codex}": Path(environment.get("CODEX_HOME") or home / ".codex"),
        "{crush}": Path(environment.get("CRUSH_GLOBAL_CONFIG") or xdg / "crush"),
        "{goose}": app / "Block" / "goose" / "config" if platform == "win32" else xdg / "goose",
        "{copilot}": Path(environment.get("COPILOT_HOME") or home / ".copilot"),
    }


_PASSING: Final = ("archive-v0", "environments-v2")


def own_command(executable: Path) -> tuple[str, ...]:
    """Return the command line of the riglm that this interpreter, `executable`, runs.

    What `uvx` or `pipx run` unpacked for one run is started by them again: their cache may be emptied at any time.
    """
    parts = executable.parts
    if any(part in parts for part in _PASSING) and (uvx := shutil.which("uvx")):
        return (uvx, "riglm")
    if "pipx" in parts and any("cache" in part for part in parts) and (pipx := shutil.which("pipx")):
        return (pipx, "run", "riglm")
    suffix = ".exe" if executable.suffix.lower() == ".exe" else ""
    sibling = executable.with_name(f"riglm{suffix}")
    if not sibling.is_file():
        return (str(executable), "-m", "riglm")
    known = shutil.which("riglm")
    return (known,) if known and Path(known).is_absolute() and sibling.samefile(known) else (str(sibling),)


_WRITABLE: Final = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


class SafeFiles:
    """Files of this machine: symbolic links, modes and owners stay as they are, new files are for the user alone.

    Folders that were made for a file are removed with it.
    """

    def __init__(self) -> None:
        self._made: list[Path] = []

    def read(self, file: Path) -> bytes | None:
        """Return the content; None when there is no such file.

        Raises:
            ConflictError: it cannot be read.
        """
        try:
            return file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConflictError(f"{file} cannot be read ({error.strerror}) — fix: let riglm read it") from None

    def write(self, file: Path, before: bytes | None, after: bytes | None) -> None:
        """Replace the content of the file, or delete it.

        Raises:
            ConflictError: it cannot be written, or does not hold what it held before.
        """
        if before == after:
            return
        target = file.resolve()  # of a symbolic link, what it points to is replaced
        if before is not None and after is not None:
            _require_unprotected(target)
        if self.read(file) != before:
            raise ConflictError(f"{file} was changed by another process — fix: run it again")
        try:
            if after is None:
                file.unlink()
                _remove_empty([file.parent, *(folder for folder in file.parent.parents if folder in self._made)])
            else:
                self._made += _put(target, after)
        except OSError as error:
            raise ConflictError(failed_write(file, error, "let riglm write there, and run it again")) from None


def _require_unprotected(target: Path) -> None:
    """Raise ConflictError for a file without write permission: a new one in its place would get round that."""
    try:
        is_writable = target.stat().st_mode & _WRITABLE and os.access(target, os.W_OK)  # root may write everything
    except OSError:
        return
    if not is_writable:
        raise ConflictError(
            f"{target} has no write permission — fix: `chmod u+w {shlex.quote(str(target))}` if it may change"
        )


def _put(target: Path, content: bytes) -> list[Path]:
    """Create or replace a file by way of a temporary one next to it; return the folders that were made for it."""
    absent = [each for each in target.parents if not each.exists()]
    there = target.stat() if target.exists() else None
    with contextlib.ExitStack() as undone:
        undone.callback(_remove_empty, absent)
        with private_draft(target, content) as draft:
            if there is not None and sys.platform != "win32":
                if (there.st_uid, there.st_gid) != (os.geteuid(), os.getegid()):
                    os.chown(draft, there.st_uid, there.st_gid)
                draft.chmod(there.st_mode & 0o7777)
            draft.replace(target)
        undone.pop_all()
    return absent


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove these folders, the innermost first, up to one that is not empty."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()
