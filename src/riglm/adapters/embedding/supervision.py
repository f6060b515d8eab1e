"""Keeps the embedding process: when it starts, when it starts again, when it ends."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from riglm.adapters.embedding.frames import Embed, Loaded, Vectors
from riglm.adapters.embedding.shared_server import SharedServer
from riglm.adapters.embedding.turns import Turns
from riglm.adapters.embedding.worker_process import NothingLoaded, WorkerCrashed, WorkerProcess, WorkerSilent
from riglm.ports.embedder import EmbedderUnavailable

_log = logging.getLogger("riglm.embedder")
_LONGEST_DELAY: Final = 300.0
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
            except EmbedderUnavailable as error:
                self._fail(error)

    def close(self) -> None:
        """End the process, or leave the server; callers that wait for a response get `EmbedderUnavailable`."""
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
            EmbedderUnavailable: it is down or closed, or did not answer within `seconds`.
        """
        self.refuse_if_down()
        with self._turns:
            self.refuse_if_down()
            try:
                return self._insist(lambda: self._ask(request, seconds))
            except (NothingLoaded, WorkerCrashed, WorkerSilent) as error:  # but not a text that the model refused
                if self._open:
                    self._fail(error)
                raise

    def refuse_if_down(self) -> None:
        """Fail at once instead of waiting.

        Raises:
            EmbedderUnavailable: it is down.
        """
        if self.down is not None:
            raise EmbedderUnavailable(self.down)

    def _insist(self, action: Callable[[], _Result]) -> _Result:
        """Do something with the process, again with a new one after a crash; the last one is private."""
        while True:
            try:
                result = action()
            except WorkerCrashed as error:
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
            raise EmbedderUnavailable("no model was loaded")
        vectors = worker.ask(request, Vectors, seconds)
        self._failures = 0
        return self.loaded, vectors

    def _start(self) -> WorkerProcess:
        with self._closing:
            if not self._open:
                raise EmbedderUnavailable("the embedder is not open")
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
                _log.info("no embedding server can be used, so riglm starts its own", extra={"reason": str(error)})
        return WorkerProcess.start()

    def _fail(self, error: EmbedderUnavailable) -> None:
        self._drop()
        self._crashes = 0
        self.down = str(error)
        delay = min(self._first_delay * 2**self._failures, _LONGEST_DELAY)
        self._failures += 1
        self._later(delay, self._revive)

    def _revive(self) -> None:
        with self._turns:
            try:
                self._start()
            except EmbedderUnavailable as error:
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
