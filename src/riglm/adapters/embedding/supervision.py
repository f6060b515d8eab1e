"""Supervision of the embedding process: a private one, or one that all riglm processes of a user share."""

import contextlib
import hashlib
import logging
import os
import selectors
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Self, TypeVar

from riglm.adapters.embedding.bundled import NOTHING_REPORTED, REVISION
from riglm.adapters.embedding.frames import (
    Embed,
    Load,
    Loaded,
    Refused,
    Turns,
    Vectors,
    WorkerMessage,
    is_same_user,
    receive,
    send,
)
from riglm.ports.embedder import EmbedderUnavailableError

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


_T = TypeVar("_T", bound=WorkerMessage)
_GRACE_SECONDS: Final = 1.0
_ENVIRONMENT: Final = NOTHING_REPORTED | {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
}
_SERVER_VARIABLES: Final = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "PYTHONHOME", "PYTHONPATH", "TMPDIR")


class WorkerCrashedError(EmbedderUnavailableError):
    """The embedding process ended by itself."""


class WorkerTimeoutError(EmbedderUnavailableError):
    """The embedding process did not answer in time."""


class NoModelLoadedError(EmbedderUnavailableError):
    """None of the models can be loaded; the message has the reason for each."""


class WorkerProcess:
    """A connection to an embedding process, which is private or a server that other riglm processes use as well.

    Either runs in a separate process session, so that no terminal signal reaches it. One thread at a time sends a
    request; any thread may kill the connection, and the one that waits for a response gets `WorkerCrashedError`.
    """

    def __init__(
        self, link: socket.socket, process: "subprocess.Popen[bytes] | None", give_up: Callable[[], None]
    ) -> None:
        """`process` is the one that this riglm owns; `give_up` is called when there is no response."""
        self._link = link
        self._process = process
        self._give_up = give_up

    @classmethod
    def start(cls) -> Self:
        """Start a process for this riglm alone.

        Raises:
            WorkerCrashedError: it cannot be started.
        """
        link, theirs = socket.socketpair()
        with theirs:
            try:
                return cls(link, _start(theirs, os.environ), lambda: None)
            except OSError as error:
                link.close()
                raise WorkerCrashedError(f"the embedding process cannot be started: {error}") from error

    @classmethod
    def join(cls, server: SharedServer) -> Self:
        """Connect to the server that all riglm processes of this user share, which is started if there is none.

        It gets none of the credentials in this process's environment, which may differ from those of other clients.

        Raises:
            OSError: there can be no such server here.
        """
        environment = {name: os.environ[name] for name in _SERVER_VARIABLES if name in os.environ}
        link, remove = server.connect(lambda listener, path: _detach(_start(listener, environment, str(path))))
        return cls(link, None, remove)

    @property
    def pid(self) -> int | None:
        """The process id of the private process while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def has_ended(self) -> bool:
        """True if the process has disconnected, as it does after a time without a request; asked between requests."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._link, selectors.EVENT_READ)
            return bool(selector.select(0))

    def load(self, models: tuple[str, ...], directory: Path, *, idle: float, seconds: float) -> Loaded:
        """Load the first of the models that can be.

        Raises:
            NoModelLoadedError: none can.
            EmbedderUnavailableError: it crashed, or took longer than `seconds`.
        """
        answer = self._exchange(Load(models=models, directory=str(directory.absolute()), idle=idle), seconds)
        if isinstance(answer, Refused):
            reasons = "; ".join(each.reason for each in answer.passed_over)
            raise NoModelLoadedError(reasons or answer.reason)
        return self._expected(answer, Loaded)

    def ask(self, request: WorkerMessage, expected: type[_T], seconds: float) -> _T:
        """The answer to a request.

        Raises:
            EmbedderUnavailableError: it refused, crashed, or took longer than `seconds`.
        """
        answer = self._exchange(request, seconds)
        if isinstance(answer, Refused):
            raise EmbedderUnavailableError(f"the model refused a text: {answer.reason}")
        return self._expected(answer, expected)

    def kill(self) -> None:
        """Disconnect now, and end the process if it is private; from any thread."""
        # The socket is shut, not closed: another thread may be reading from it.
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def close(self) -> None:
        """Let the process end by itself, kill it if it does not, and close the connection. No thread may be asking."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE_SECONDS)
        self.kill()
        self._link.close()

    def _exchange(self, request: WorkerMessage, seconds: float) -> WorkerMessage:
        deadline = time.monotonic() + seconds
        try:
            send(self._link, request, deadline)
            answer = receive(self._link, deadline)
        except TimeoutError:
            self._give_up()
            self.kill()
            raise WorkerTimeoutError(f"the embedding process did not answer within {seconds:g} s") from None
        except (OSError, ValueError) as error:
            self._give_up()
            raise WorkerCrashedError(f"the embedding process broke off: {error}") from error
        if answer is None:
            self._give_up()
            raise WorkerCrashedError("the embedding process ended")
        return answer

    @staticmethod
    def _expected(answer: WorkerMessage, kind: type[_T]) -> _T:
        if not isinstance(answer, kind):
            raise WorkerCrashedError(f"the embedding process answered with {type(answer).__name__}")
        return answer


def _start(link: socket.socket, environment: Mapping[str, str], *arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        # -P: a module of the user's directory must not replace a library.
        [sys.executable, "-P", "-m", "riglm.adapters.embedding.worker", *arguments],
        stdin=link.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**environment, **_ENVIRONMENT},
        start_new_session=True,
    )


def _detach(process: "subprocess.Popen[bytes]") -> None:
    """Reap the process that a server detaches from, as soon as it has ended."""
    threading.Thread(target=process.wait, name="riglm-embedder-start", daemon=True).start()


_log = logging.getLogger("riglm.embedder")
_MAX_BACKOFF: Final = 300.0
_MAX_SERVER_CRASHES: Final = 2
_Result = TypeVar("_Result")


class Supervisor:
    """One embedding process at a time: the user's shared server if possible, otherwise a private process.

    After a crash it is started again at once; where the server has crashed twice, a private process takes its
    place until that has been idle. When that fails too, or when it hangs, the model is `down`: questions are refused at
    once while it is started in the background, after pauses that double up to five minutes.
    """

    def __init__(
        self,
        models: tuple[str, ...],
        directory: Path,
        *,
        start_deadline: float,
        idle: float,
        first_delay: float,
        server: SharedServer | None,
    ) -> None:
        """A supervisor without a process.

        Args:
            models: the configured one, then its fallbacks.
            directory: where models of the hub are kept.
            start_deadline: seconds for the process to start and load a model.
            idle: seconds without a question after which it ends.
            first_delay: seconds of the first pause.
            server: the shared server, None for a private process only.
        """
        self.loaded: Loaded | None = None
        """The model that was loaded last."""
        self.first_loaded: Loaded | None = None
        """The model that was loaded first."""
        self.down: str | None = None
        """Why no question can be answered now."""
        self._models = models
        self._directory = directory
        self._start_deadline = start_deadline
        self._idle = idle
        self._first_delay = first_delay
        self._server = server
        self._turns = Turns()  # held while the process is used, started or ended
        self._closing = threading.Lock()  # held to look whether it may still be started
        self._open = False
        self._worker: WorkerProcess | None = None
        self._timer: threading.Timer | None = None
        self._failures = 0
        self._crashes = 0

    @property
    def pid(self) -> int | None:
        """The id of the private process; None while there is none."""
        worker = self._worker
        return worker.pid if worker else None

    def open(self) -> None:
        """Start the process and load a model; where that fails it is `down`."""
        with self._turns:
            self._open, self.down, self._failures, self._crashes = True, None, 0, 0
            try:
                self._insist(self._start)
            except EmbedderUnavailableError as error:
                self._fail(error)

    def close(self) -> None:
        """End the process, or leave the server; callers that wait for a response get `EmbedderUnavailableError`."""
        with self._closing:
            self._open = False
            worker, timer = self._worker, self._timer
        if timer is not None:
            timer.cancel()
        if worker is not None:
            worker.kill()
        with self._turns:
            self._drop()

    def ask(self, request: Embed, seconds: float) -> tuple[Loaded, Vectors]:
        """The answer, and the model that gave it.

        Raises:
            EmbedderUnavailableError: it is down or closed, or did not answer within `seconds`.
        """
        self.refuse_if_down()
        with self._turns:
            self.refuse_if_down()
            try:
                return self._insist(lambda: self._ask(request, seconds))
            except (
                NoModelLoadedError,
                WorkerCrashedError,
                WorkerTimeoutError,
            ) as error:  # but not a text that the model refused
                if self._open:
                    self._fail(error)
                raise

    def refuse_if_down(self) -> None:
        """Fail at once instead of waiting.

        Raises:
            EmbedderUnavailableError: it is down.
        """
        if self.down is not None:
            raise EmbedderUnavailableError(self.down)

    def _insist(self, action: Callable[[], _Result]) -> _Result:
        """Do something with the process, again with a new one after a crash; the last one is private."""
        while True:
            try:
                result = action()
            except WorkerCrashedError as error:
                self._crashes += 1
                if not self._open or self._crashes > (_MAX_SERVER_CRASHES if self._server else 1):
                    raise
                _log.warning("the embedding process is started again", extra={"reason": str(error)})
                self._drop()
            else:
                self._crashes = 0
                return result

    def _ask(self, request: Embed, seconds: float) -> tuple[Loaded, Vectors]:
        if self._worker is not None and self._worker.has_ended:
            self._drop()
        worker = self._worker or self._start()
        if self.loaded is None:
            raise EmbedderUnavailableError("no model was loaded")
        vectors = worker.ask(request, Vectors, seconds)
        self._failures = 0
        return self.loaded, vectors

    def _start(self) -> WorkerProcess:
        with self._closing:
            if not self._open:
                raise EmbedderUnavailableError("the embedder is not open")
            worker = self._worker = self._connect()
        before = self.loaded
        self.loaded = worker.load(self._models, self._directory, idle=self._idle, seconds=self._start_deadline)
        self.first_loaded = self.first_loaded or self.loaded
        if self.loaded.passed_over and self.loaded != before:
            reason = "; ".join(each.reason for each in self.loaded.passed_over)
            _log.warning("another model was loaded", extra={"model": self.loaded.model, "reason": reason})
        self.down = None
        return worker

    def _connect(self) -> WorkerProcess:
        if self._server is not None and self._crashes < _MAX_SERVER_CRASHES:
            try:
                return WorkerProcess.join(self._server)
            except OSError as error:
                _log.info(
                    "no embedding server is available; starting a separate model process", extra={"reason": str(error)}
                )
        return WorkerProcess.start()

    def _fail(self, error: EmbedderUnavailableError) -> None:
        self._drop()
        self._crashes = 0
        self.down = str(error)
        delay = min(self._first_delay * 2**self._failures, _MAX_BACKOFF)
        self._failures += 1
        self._later(delay, self._revive)

    def _revive(self) -> None:
        with self._turns:
            try:
                self._start()
            except EmbedderUnavailableError as error:
                if self._open:
                    self._fail(error)
            else:
                _log.info("the model can be used again", extra={"model": self.loaded and self.loaded.model})

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        with self._closing:
            if not self._open:
                return
            if self._timer is not None:
                self._timer.cancel()
            self._timer = threading.Timer(seconds, action)
            self._timer.daemon = True
            self._timer.start()

    def _drop(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()
