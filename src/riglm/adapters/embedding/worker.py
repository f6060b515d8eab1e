"""The embedding process: `python -m riglm.adapters.embedding.worker [PATH]`, with a socket as its standard input.

The socket is connected to one riglm process. With PATH it listens there, and the process serves all riglm processes of
a user: it detaches from the one that started it. The process exits after `idle` seconds without a request.
"""

import contextlib
import ctypes
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

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

if TYPE_CHECKING:  # numpy comes with it, and a server detaches first
    from riglm.adapters.embedding.onnx_model import OnnxModel

_NICENESS: Final = 5
_START_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 1.0


def main() -> int:
    """Serve until no client is left or nothing was asked for `idle` seconds; the exit code."""
    if sys.argv[1:] and os.fork():
        os._exit(0)  # the starter waits for this process; the server is a child of init
    os.nice(_NICENESS)
    link = _private_socket()
    worker = EmbeddingWorker()
    if sys.argv[1:]:
        _serve_all(worker, link, Path(sys.argv[1]))
    else:
        _serve(worker, link, ends_when_idle=True)
    return 0


class EmbeddingWorker:
    """Loads a model and embeds with it. Several threads may ask; they take turns, one text each."""

    def __init__(self) -> None:
        self._model: OnnxModel | None = None
        self._loaded: Loaded | None = None
        self._idle = _START_SECONDS
        self._last_used = time.monotonic()
        self._busy = 0
        self._counting = threading.Lock()
        self._turns = Turns()

    @property
    def idle_deadline(self) -> float:
        """The time, on the monotonic clock, at which the process exits if nothing is asked until then."""
        return (time.monotonic() if self._busy else self._last_used) + self._idle

    def answer(self, request: WorkerMessage) -> WorkerMessage:
        """Return the response to a request. Never raises: a failure is a `Refused` with the reason."""
        self._count(1)
        try:
            match request:
                case Load():
                    with self._turns:
                        return self._load(request)
                case Embed() if self._model is not None:
                    return Vectors(floats=b"".join([self._row(self._model, text) for text in request.texts]))
                case _:
                    return Refused(reason="no model is loaded")
        except Exception as error:  # noqa: BLE001  # riglm decides what to do about it
            return Refused(reason=f"{type(error).__name__}: {error}")
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._counting:
            self._busy += change
            self._last_used = time.monotonic()

    def _load(self, request: Load) -> WorkerMessage:
        from riglm.adapters.embedding.onnx_model import load_first

        self._idle = request.idle if self._loaded is None else max(self._idle, request.idle)
        if self._loaded is None:
            self._model, passed_over = load_first(request.models, Path(request.directory))
            if self._model is None:
                return Refused(reason="no model can be loaded", passed_over=tuple(passed_over))
            model = self._model
            self._loaded = Loaded(
                model=model.name, identity=model.identity, dimensions=model.dimensions, passed_over=tuple(passed_over)
            )
            release_memory()
        return self._loaded

    def _row(self, model: "OnnxModel", text: str) -> bytes:
        with self._turns:  # a query waits for one text of another client's batch, not for all of them
            return model.embed(text).tobytes()


def release_memory() -> None:
    """Return freed memory to the system: the C library keeps 70 MB that loading the model needed."""
    with contextlib.suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def _serve_all(worker: EmbeddingWorker, listener: socket.socket, path: Path) -> None:
    """Accept clients until idle, or until the socket's path is deleted and all clients have disconnected."""
    identity = path.stat().st_ino
    clients: list[threading.Thread] = []
    listener.settimeout(_POLL_SECONDS)
    while time.monotonic() < worker.idle_deadline:
        clients = [client for client in clients if client.is_alive()]
        if not _is_at(path, identity) and not clients:
            return
        with contextlib.suppress(TimeoutError):
            link, _ = listener.accept()
            if is_same_user(link):
                clients.append(threading.Thread(target=_serve, args=(worker, link), daemon=True))
                clients[-1].start()
            else:
                link.close()
    if _is_at(path, identity):
        path.unlink(missing_ok=True)  # before the listener closes: no other server has put a socket there yet


def _is_at(path: Path, identity: int) -> bool:
    with contextlib.suppress(OSError):
        return path.stat().st_ino == identity
    return False


def _serve(worker: EmbeddingWorker, link: socket.socket, *, ends_when_idle: bool = False) -> None:
    """Answer one request after the other until the client disconnects."""
    with link, contextlib.suppress(OSError, ValueError):
        while (request := receive(link, worker.idle_deadline if ends_when_idle else None)) is not None:
            send(link, worker.answer(request))


def _private_socket() -> socket.socket:
    """Duplicate the socket to a descriptor that libraries neither read nor print to."""
    link = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    return link


if __name__ == "__main__":
    sys.exit(main())
