"""A TCP proxy that can fail as networks and servers do: hang, reset, lose an answer."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import Self

from tests.waiting import WAIT_SECONDS

_LINGER_NOT = struct.pack("ii", 1, 0)  # closing then sends a reset
_CHUNK = 65_536


class FaultProxy:
    """Passes connections on to a server until it is told otherwise. `connect` opens a connection to the server."""

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self._connect = connect
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._flowing = threading.Event()
        self._flowing.set()
        self._open: set[socket.socket] = set()
        self._changing = threading.Lock()
        self._fatal: bytes | None = None
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    @property
    def port(self) -> int:
        """Where it listens, on the loopback address."""
        return int(self._listener.getsockname()[1])

    def freeze(self) -> None:
        """Pass nothing on, while connections are still taken."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Pass on what waited, and all else."""
        self._flowing.set()

    def reset(self) -> None:
        """Break every connection that there is."""
        with self._changing:
            for each in self._open:
                _break(each)
            self._open.clear()

    def lose_the_answer_to(self, words: bytes) -> None:
        """Pass on the next message of a client that holds these words, and break its connection before the answer."""
        self._fatal = words

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.thaw()
        self.reset()
        for each in self._threads:
            each.join(WAIT_SECONDS)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = self._connect()
            except OSError:
                _break(client)
                continue
            with self._changing:
                self._open |= {client, server}
            for source, target, is_client in ((client, server, True), (server, client, False)):
                thread = threading.Thread(target=self._pass_on, args=(source, target, is_client), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pass_on(self, source: socket.socket, target: socket.socket, is_client: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                self._flowing.wait()
                if is_client and self._fatal is not None and self._fatal in data:
                    self._fatal = None
                    _shut(source)
                    target.sendall(data)
                    target.shutdown(socket.SHUT_WR)
                    return
                target.sendall(data)
        _shut(source)
        _shut(target)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _break(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
