"""Messages between riglm and its embedding process in MessagePack, each preceded by its length, and a fair lock."""

import os
import socket
import struct
import time
from threading import Lock
from typing import Final, Self, TypeAlias

import msgspec

_LENGTH_BYTES: Final = 4
_MAX_BYTES: Final = 256 * 1024 * 1024


class Load(msgspec.Struct, frozen=True, tag=True):
    """Load the first of these models that can be; those of the hub are looked for in `directory` only.

    The process exits after `idle` seconds without a request; of several clients' values the largest counts.
    """

    models: tuple[str, ...]
    directory: str
    idle: float


class PassedOver(msgspec.Struct, frozen=True):
    """A model that could not be loaded, and why."""

    model: str
    reason: str


class Loaded(msgspec.Struct, frozen=True, tag=True):
    """The loaded model: its name, what identifies its vectors, their length, and what was configured before it."""

    model: str
    identity: str
    dimensions: int
    passed_over: tuple[PassedOver, ...] = ()


class Embed(msgspec.Struct, frozen=True, tag=True):
    """Embed these texts."""

    texts: tuple[str, ...]


class Vectors(msgspec.Struct, frozen=True, tag=True):
    """One row for each text: 32-bit floats in this machine's order of bytes."""

    floats: bytes


class Refused(msgspec.Struct, frozen=True, tag=True):
    """It could not be done, and why."""

    reason: str
    passed_over: tuple[PassedOver, ...] = ()


WorkerMessage: TypeAlias = Load | Loaded | Embed | Vectors | Refused

_decoder = msgspec.msgpack.Decoder(WorkerMessage)


def send(link: socket.socket, message: WorkerMessage, deadline: float | None = None) -> None:
    """Send it whole.

    Args:
        link: where to.
        message: what.
        deadline: when to give up, on the monotonic clock; None waits without end.

    Raises:
        TimeoutError: the other side did not read it in time.
        OSError: the peer disconnected.
    """
    body = msgspec.msgpack.encode(message)
    link.settimeout(_left(deadline))
    link.sendall(len(body).to_bytes(_LENGTH_BYTES, "big") + body)


def receive(link: socket.socket, deadline: float | None = None) -> WorkerMessage | None:
    """Return the next message, or None if the peer disconnected.

    Raises:
        TimeoutError: it did not come in time.
        OSError: the link broke.
        ValueError: what came is no message.
    """
    head = _read(link, _LENGTH_BYTES, deadline)
    if head is None:
        return None
    length = int.from_bytes(head, "big")
    if length > _MAX_BYTES:
        raise ValueError(f"a message of {length} bytes")
    body = _read(link, length, deadline)
    return None if body is None else _decoder.decode(body)


def _read(link: socket.socket, count: int, deadline: float | None) -> bytearray | None:
    into = bytearray(count)
    rest = memoryview(into)
    while rest:
        link.settimeout(_left(deadline))
        got = link.recv_into(rest)
        if not got:
            return None
        rest = rest[got:]
    return into


def _left(deadline: float | None) -> float | None:
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class Turns:
    """A lock that a thread cannot take twice in a row while another waits for it.

    A plain lock would let a thread that loops over many batches keep the others out.
    """

    def __init__(self) -> None:
        self._next = Lock()
        self._busy = Lock()

    def __enter__(self) -> Self:
        with self._next:
            self._busy.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._busy.release()


_CREDENTIALS: Final = struct.Struct("3i")  # process, user and group of the peer


def is_same_user(link: socket.socket) -> bool:
    """True if the peer runs as this process's user; also where the system cannot report it."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    _, user, _ = _CREDENTIALS.unpack(link.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return bool(user == os.geteuid())
