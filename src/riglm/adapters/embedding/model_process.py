"""Finds or starts the model process: one that all riglm processes of a user share, or a private one."""

import contextlib
import hashlib
import logging
import os
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from riglm.adapters.embedding.fastembed import REVISION
from riglm.adapters.embedding.model_server import file_identity
from riglm.domain.schemas.section import EmbedderSettings

_START_SECONDS: Final = 30.0
_LOCK_SECONDS: Final = 5.0
_CONNECT_SECONDS: Final = 2.0
_BACKLOG: Final = 64
_POLL_SECONDS: Final = 0.01
_VARIABLES: Final = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "PYTHONHOME", "PYTHONPATH", "TMPDIR")
_OWN_VARIABLES: Final = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
_log: Final = logging.getLogger("riglm.embedder")


def models_directory(settings: EmbedderSettings) -> Path:
    """Where downloaded models are kept; it need not exist."""
    if settings.directory:
        return Path(settings.directory).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("riglm", appauthor=False)) / "models"


def _socket_directory() -> Path:
    """The user's directory for the sockets of shared processes, in XDG_RUNTIME_DIR or the temporary files."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime) / "riglm"
    return Path(tempfile.gettempdir()) / f"riglm-{getattr(os, 'geteuid', int)()}"


class ModelProcess:
    """The process that runs a model.

    Each riglm version, installation, model and set of downloaded models has a separate socket. Its directory must
    belong to the user and be closed to others. A private process has none: its socket is removed once it is connected,
    and it exits when its client disconnects.
    """

    def __init__(self, model: str, settings: EmbedderSettings) -> None:
        """A process for the model of this name."""
        self._model = model
        self._directory = models_directory(settings).absolute()
        self._idle = settings.idle
        self._is_shared = settings.shared
        self._socket: tuple[Path, int | None] | None = None

    def connect(self) -> socket.socket:
        """Connect to the process, which is started if there is none.

        Raises:
            OSError: it cannot be started.
        """
        if sys.platform == "win32":
            raise OSError("this system has no sockets in directories")
        self._socket = None
        if self._is_shared:
            try:
                return self._connect_shared(_socket_directory())
            except OSError as error:
                _log.info("the model process cannot be shared", extra={"reason": str(error)})
        with tempfile.TemporaryDirectory(prefix="riglm-") as place:
            return self._start(Path(place) / "socket")

    def give_up(self) -> None:
        """Remove the socket of a process that does not answer, so that the next client starts a process."""
        if self._socket is not None:
            path, identity = self._socket
            with contextlib.suppress(OSError), _locked(path.parent):
                if file_identity(path) == identity:
                    path.unlink()

    def _connect_shared(self, place: Path) -> socket.socket:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = place.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise PermissionError(f"{place} is open to other users")
        path = place / self._socket_name()
        link = _connected(path)
        if link is None:
            with _locked(place):
                link = _connected(path) or self._start(path)
        self._socket = path, file_identity(path)
        return link

    def _socket_name(self) -> str:
        from importlib.metadata import version

        pulled = sorted(str(each) for each in self._directory.glob("models--*/snapshots/*"))
        parts = (version("riglm"), sys.prefix, REVISION, str(self._directory), self._model, *pulled)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    def _start(self, path: Path) -> socket.socket:
        """Start a process that listens at a path, and connect to it. It gets no credentials of this process."""
        path.unlink(missing_ok=True)
        module = "riglm.adapters.embedding.model_server"
        # -P: a module of the user's directory must not replace a library.
        command = [sys.executable, "-P", "-m", module, str(path), self._model, str(self._directory), str(self._idle)]
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(_BACKLOG)
            try:
                subprocess.run(
                    command,
                    stdin=listener.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={name: os.environ[name] for name in _VARIABLES if name in os.environ} | _OWN_VARIABLES,
                    start_new_session=True,  # no terminal's signal reaches it
                    timeout=_START_SECONDS,
                    check=True,
                )
            except subprocess.SubprocessError as error:
                raise OSError(f"the model process cannot be started: {error}") from error
            link = _connected(path)  # it waits in the queue until the model is loaded
        if link is None:
            raise ConnectionRefusedError(f"nothing listens at {path}")
        return link


def _connected(path: Path) -> socket.socket | None:
    """A connection to the process at a path; None if none listens there."""
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(_CONNECT_SECONDS)
    try:
        link.connect(str(path))
    except OSError as error:
        link.close()
        if isinstance(error, FileNotFoundError | ConnectionRefusedError):
            return None
        raise
    return link


@contextlib.contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Let one process at a time start or remove a process."""
    import fcntl

    deadline = time.monotonic() + _LOCK_SECONDS
    with (place / "lock").open("ab") as file:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > deadline:
                raise TimeoutError("another process keeps the lock of the model process")
            time.sleep(_POLL_SECONDS)
        yield
