"""The embedding process that all riglm processes of a user share: where its socket is, and who starts it."""

import contextlib
import hashlib
import os
import socket
import stat
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from riglm.adapters.embedding.bundled import REVISION

_CREDENTIALS: Final = struct.Struct("3i")  # process, user and group of the peer


def is_same_user(link: socket.socket) -> bool:
    """True if the peer runs as this process's user; also where the system cannot report it."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    _, user, _ = _CREDENTIALS.unpack(link.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return bool(user == os.geteuid())


_LOCK_SECONDS: Final = 2.0
_CONNECT_SECONDS: Final = 2.0
_BACKLOG: Final = 64
_POLL_SECONDS: Final = 0.01


def socket_directory(environment: Mapping[str, str]) -> Path:
    """The user's directory for the server's socket: in XDG_RUNTIME_DIR, else in the directory of temporary files."""
    runtime = environment.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime) / "riglm"
    return Path(tempfile.gettempdir()) / f"riglm-{getattr(os, 'geteuid', int)()}"


class SharedServer:
    """The place of a server of some models. A riglm process that finds none there starts one.

    Each riglm version, installation, list of models and set of downloaded models has a separate socket. The directory
    must belong to the user and be closed to others.
    """

    def __init__(self, directory: Path, models: tuple[str, ...], downloaded: Path) -> None:
        """Keep the socket in `directory`; `downloaded` is where models of the hub are kept."""
        self._directory = directory
        self._models = models
        self._downloaded = downloaded

    def connect(self, start: Callable[[socket.socket, Path], None]) -> tuple[socket.socket, Callable[[], None]]:
        """Return a connection, and what removes the socket if the server does not answer or has crashed.

        `start` starts a server that listens at a path; of several processes that find none, one calls it.

        Raises:
            OSError: there can be no such server here.
        """
        if sys.platform == "win32":
            raise OSError("this system has no sockets in directories")
        self._make_private()
        path = self._path()
        link = _connected(path)
        if link is None:
            with self._locked():
                link = _connected(path) or _started(path, start)
        try:
            identity = path.stat().st_ino
        except FileNotFoundError:  # another process removed it just now, since the server did not answer
            link.close()
            raise
        return link, lambda: self._remove(path, identity)

    def _remove(self, path: Path, identity: int) -> None:
        with contextlib.suppress(OSError), self._locked():
            if path.stat().st_ino == identity:
                path.unlink()

    def _make_private(self) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self._directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise PermissionError(f"{self._directory} is open to other users")

    def _path(self) -> Path:
        from importlib.metadata import version

        pulled = sorted(str(each) for each in self._downloaded.glob("models--*/snapshots/*"))
        said = (version("riglm"), sys.prefix, REVISION, str(self._downloaded.absolute()), *self._models, *pulled)
        return self._directory / hashlib.sha256("\0".join(said).encode()).hexdigest()[:16]

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        import fcntl

        deadline = time.monotonic() + _LOCK_SECONDS
        with (self._directory / "lock").open("ab") as file:
            while True:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                if time.monotonic() > deadline:
                    raise TimeoutError("another process keeps the lock of the embedding server")
                time.sleep(_POLL_SECONDS)
            yield


def _connected(path: Path) -> socket.socket | None:
    """A connection to the server at a path; None if no process listens there."""
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(_CONNECT_SECONDS)
    with contextlib.ExitStack() as undo:
        undo.enter_context(link)
        try:
            link.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        if not is_same_user(link):
            raise PermissionError(f"{path} belongs to another user")
        undo.pop_all()
        return link


def _started(path: Path, start: Callable[[socket.socket, Path], None]) -> socket.socket:
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(_BACKLOG)
        start(listener, path)
        link = _connected(path)  # it waits in the queue until the server runs
    if link is None:
        raise ConnectionRefusedError(f"nothing listens at {path}")
    return link
