"""Embeds texts by asking the model process, which is found or started: one that a user's processes share, or not."""

import contextlib
import hashlib
import logging
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn, Self

import numpy as np

from riglm.adapters.embedding.fastembed import REVISION
from riglm.adapters.embedding.hashing import readable
from riglm.adapters.embedding.model_server import Channel, Embed, Loaded, Refused, Row, file_identity
from riglm.adapters.private_files import wait_for_lock
from riglm.domain.errors import RiglmError
from riglm.domain.prediction import Vector
from riglm.domain.schemas.section import EmbedderSettings
from riglm.ports.embedder import EmbedderPort, EmbedderStatus, EmbedderUnavailableError

_START_SECONDS: Final = 30.0
_LOCK_SECONDS: Final = 5.0
_CONNECT_SECONDS: Final = 2.0
_BACKLOG: Final = 64
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
            except (OSError, RiglmError) as error:
                _log.info("the model process cannot be shared", extra={"reason": str(error)})
        with tempfile.TemporaryDirectory(prefix="riglm-") as place:
            return self._start(Path(place) / "socket")

    def give_up(self) -> None:
        """Remove the socket of a process that does not answer, so that the next client starts a process."""
        if self._socket is not None:
            path, identity = self._socket
            with contextlib.suppress(OSError, RiglmError), wait_for_lock(path.parent / "lock", _LOCK_SECONDS):
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
            with wait_for_lock(place / "lock", _LOCK_SECONDS):
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


FASTEMBED_PROVIDER: Final = "fastembed"
"""The provider's name in the configuration and in the capability signal."""

_TURN_TEXTS: Final = 8
_ATTEMPTS: Final = 3  # the second may meet a process that is just ending
_MAX_BACKOFF_SECONDS: Final = 300.0


class Turns:
    """A lock that a thread cannot take twice in a row while another waits for it.

    A plain lock would let a thread that loops over many texts keep the others out.
    """

    def __init__(self) -> None:
        self._next = threading.Lock()
        self._busy = threading.Lock()

    def __enter__(self) -> Self:
        with self._next:
            self._busy.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._busy.release()


class FastembedEmbedder(EmbedderPort):
    """A model of fastembed, run by the model process: a private one, or one that a user's riglm processes share.

    Several threads may ask; they take turns of eight texts. If the process ends, it is started again at once. If that
    does not help, or it does not answer or cannot load the model, the model is down: questions are refused at once
    while it is started in the background, after pauses that double up to five minutes.
    """

    def __init__(self, model: str, settings: EmbedderSettings, *, first_delay: float = 1.0) -> None:
        """Use the model of this name; `first_delay` is the first pause after a failure, in seconds. Not open yet."""
        self._name = model
        self._process = ModelProcess(model, settings)
        self._settings = settings
        self._first_delay = first_delay
        self._turns = Turns()  # held while the channel is used, opened or closed
        self._opening = threading.Lock()  # held to look whether it may still be opened
        self._is_open = False
        self._channel: Channel | None = None
        self._loaded: Loaded | None = None
        self._down = ""
        self._timer: threading.Timer | None = None
        self._failures = 0

    def __enter__(self) -> Self:
        with self._turns:
            self._is_open, self._down, self._failures = True, "", 0
            with contextlib.suppress(EmbedderUnavailableError):
                self._insist(())
        return self

    def __exit__(self, *_: object) -> None:
        with self._opening:
            self._is_open = False
            if self._timer is not None:
                self._timer.cancel()
            if self._channel is not None:
                with contextlib.suppress(OSError):  # shut, not closed: another thread may be reading from it
                    self._channel.link.shutdown(socket.SHUT_RDWR)
        with self._turns:
            self._disconnect()

    @property
    def model(self) -> str:
        return self._loaded.identity if self._loaded else self._name

    def embed(self, texts: Sequence[str]) -> Vector:
        rows: list[bytes] = []
        models = set()
        for start in range(0, len(texts) or 1, _TURN_TEXTS):
            self._refuse_if_down()
            with self._turns:
                self._refuse_if_down()  # since it waited
                rows += self._insist([readable(text) for text in texts[start : start + _TURN_TEXTS]])
                models.add(self._loaded)
        if len(models) > 1:
            raise EmbedderUnavailableError("another model was loaded meanwhile")
        dimensions = self._loaded.dimensions if self._loaded else 0
        return np.frombuffer(bytearray().join(rows), dtype=np.float32).reshape(len(texts), dimensions)

    def status(self) -> EmbedderStatus:
        is_usable = self._loaded is not None and not self._down
        return EmbedderStatus(
            provider=FASTEMBED_PROVIDER,
            model=self._name,
            status="unavailable" if self._down else "ready" if self._loaded else "loading",
            actual_provider=FASTEMBED_PROVIDER,
            actual_model=self._name,
            dimensions=self._loaded.dimensions if self._loaded else 0,
            is_fallback_active=False,
            semantic_quality="high" if is_usable else "none",
        )

    def _refuse_if_down(self) -> None:
        if self._down:
            raise EmbedderUnavailableError(self._down)

    def _insist(self, texts: Sequence[str]) -> list[bytes]:
        """Return the rows of some texts, again from another process if this one ends; else the model is down."""
        try:
            for _ in range(_ATTEMPTS - 1):
                with contextlib.suppress(ConnectionError):
                    return self._exchange(texts)
                self._disconnect()
            return self._exchange(texts)
        except TimeoutError:
            self._process.give_up()
            self._fail("the model process did not answer in time")
        except (OSError, ValueError) as error:
            self._fail(f"the model process failed: {error}")

    def _exchange(self, texts: Sequence[str]) -> list[bytes]:
        channel = self._channel or self._connect()
        if not texts:
            return []
        channel.link.settimeout(self._settings.deadline)
        channel.send(Embed(tuple(texts)))
        rows = []
        for _ in texts:
            match channel.receive():
                case Row(floats):
                    rows.append(floats)
                case Refused(reason):
                    raise EmbedderUnavailableError(f"the model refused a text: {reason}")
                case other:
                    raise ValueError(f"it answered with {type(other).__name__}")
        self._failures = 0
        return rows

    def _connect(self) -> Channel:
        with self._opening:
            if not self._is_open:
                raise EmbedderUnavailableError("the embedder is not open")
            channel = self._channel = Channel(self._process.connect())
        channel.link.settimeout(self._settings.start_deadline)
        match channel.receive():
            case Loaded() as loaded:
                self._loaded, self._down = loaded, ""
            case Refused(reason):
                self._fail(reason)
            case other:
                raise ValueError(f"it answered with {type(other).__name__}")
        return channel

    def _fail(self, reason: str) -> NoReturn:
        """Have the model down, and started again later."""
        self._disconnect()
        with self._opening:
            if self._is_open:
                self._down = reason
                delay = min(self._first_delay * 2**self._failures, _MAX_BACKOFF_SECONDS)
                self._failures += 1
                self._timer = threading.Timer(delay, self._revive)
                self._timer.daemon = True
                self._timer.start()
        raise EmbedderUnavailableError(reason)

    def _revive(self) -> None:
        with self._turns, contextlib.suppress(EmbedderUnavailableError):
            self._insist(())
            _log.info("the model can be used again", extra={"model": self.model})

    def _disconnect(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
