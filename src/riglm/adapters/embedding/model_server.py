"""The model process: `python -m riglm.adapters.embedding.model_server PATH MODEL DIRECTORY IDLE`, and its messages.

Its standard input is a socket that listens at PATH. It detaches from the process that started it and serves all clients
that connect. It sends each `Loaded` or `Refused`; then, for each text of an `Embed`, a `Row` or one `Refused`, which
ends the answer. It exits after IDLE seconds without a request, or once its socket is deleted and no client is left.
"""

import contextlib
import ctypes
import faulthandler
import os
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

if TYPE_CHECKING:  # numpy comes with it, and the process detaches first
    from riglm.adapters.embedding.fastembed import LoadedModel

_LENGTH_BYTES: Final = 4
_NICENESS: Final = 5
_HANG_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 1.0


class Embed(msgspec.Struct, frozen=True, tag=True):
    """A request to embed these texts."""

    texts: tuple[str, ...]


class Loaded(msgspec.Struct, frozen=True, tag=True):
    """The model that runs: what identifies its vectors, and their length."""

    identity: str
    dimensions: int


class Row(msgspec.Struct, frozen=True, tag=True):
    """The vector of one text: 32-bit floats in this machine's order of bytes."""

    floats: bytes


class Refused(msgspec.Struct, frozen=True, tag=True):
    """It could not be done, and why."""

    reason: str


Message: TypeAlias = Embed | Loaded | Row | Refused

_decoder: Final[msgspec.msgpack.Decoder[Message]] = msgspec.msgpack.Decoder(Message)


class Channel:
    """Sends and receives messages over a socket, within the socket's timeout.

    Methods raise OSError if the link broke or a time ran out, and ValueError if what came is no message.
    """

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self._reader = link.makefile("rb")

    def send(self, message: Message) -> None:
        """Send a message whole."""
        body = msgspec.msgpack.encode(message)
        self.link.sendall(len(body).to_bytes(_LENGTH_BYTES, "big") + body)

    def receive(self) -> Message:
        """Return the next message.

        Raises:
            ConnectionError: the peer disconnected.
        """
        head = self._reader.read(_LENGTH_BYTES)
        body = self._reader.read(int.from_bytes(head, "big"))
        if not body:
            raise ConnectionError("the other side disconnected")
        return _decoder.decode(body)

    def close(self) -> None:
        """Disconnect."""
        self._reader.close()
        self.link.close()


class ModelServer:
    """Serves clients on threads. Their texts are embedded one after the other, in turn."""

    def __init__(self, model: "LoadedModel | None", reason: str, idle: float) -> None:
        """Serve a model, or the reason for which none could be loaded."""
        self._model = model
        self._greeting = Loaded(model.identity, model.dimensions) if model else Refused(reason)
        self._idle = idle
        self._last_used = time.monotonic()
        self._embedding = ThreadPoolExecutor(1)  # a query waits for one text of another client's, not for all of them

    def accept_clients(self, listener: socket.socket, path: Path) -> None:
        """Serve until idle, or until the socket is deleted and no client is left."""
        identity = file_identity(path)
        clients: list[threading.Thread] = []
        listener.settimeout(_POLL_SECONDS)
        while time.monotonic() < self._last_used + self._idle:
            faulthandler.dump_traceback_later(_HANG_SECONDS, exit=True)  # unless this comes around again
            with contextlib.suppress(TimeoutError):
                link, _ = listener.accept()
                clients.append(threading.Thread(target=self._serve, args=(link,), daemon=True))
                clients[-1].start()
            clients = [client for client in clients if client.is_alive()]
            if not clients and (identity is None or file_identity(path) != identity):
                return
        if identity is not None and file_identity(path) == identity:
            path.unlink(missing_ok=True)  # before the listener closes: no other server has put a socket there yet

    def _serve(self, link: socket.socket) -> None:
        with link, contextlib.suppress(OSError, ValueError):
            channel = Channel(link)
            channel.send(self._greeting)
            while self._model is not None and isinstance(request := channel.receive(), Embed):
                for text in request.texts:
                    answer = self._embedding.submit(self._answer, self._model, text).result()
                    channel.send(answer)
                    if isinstance(answer, Refused):
                        break

    def _answer(self, model: "LoadedModel", text: str) -> Row | Refused:
        self._last_used = time.monotonic()
        try:
            return Row(model.embed(text).tobytes())
        except Exception as error:  # noqa: BLE001  # riglm decides what to do about it
            return Refused(f"{type(error).__name__}: {error}")
        finally:
            self._last_used = time.monotonic()


def file_identity(path: Path) -> int | None:
    """Return what distinguishes the file at a path from others there, None if there is none."""
    with contextlib.suppress(OSError):
        return path.stat().st_ino
    return None


def main() -> None:
    """Serve the model of the command line."""
    if os.fork():
        os._exit(0)  # the starter waits for this process; the server is a child of init
    os.nice(_NICENESS)
    listener = _move_standard_input()
    path, name, directory, idle = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), float(sys.argv[4])
    faulthandler.dump_traceback_later(_HANG_SECONDS, exit=True)
    from riglm.adapters.embedding.fastembed import load_model

    model, reason = None, ""
    try:
        model = load_model(name, directory)
    except Exception as error:  # noqa: BLE001  # clients report it, and the next one starts another process
        reason = f"{error}" or type(error).__name__
        path.unlink(missing_ok=True)
    _release_memory()
    ModelServer(model, reason, idle).accept_clients(listener, path)
    os._exit(0)  # without waiting for a library that hangs


def _release_memory() -> None:
    """Return freed memory to the system: the C library keeps 70 MB that loading the model needed."""
    with contextlib.suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def _move_standard_input() -> socket.socket:
    """Move the socket to a descriptor that libraries neither read nor print to."""
    listener = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    return listener


if __name__ == "__main__":
    main()
