"""Checks of who is at the other end of a Unix socket."""

import os
import socket
import struct
from typing import Final

_CREDENTIALS: Final = struct.Struct("3i")  # process, user and group of the peer


def is_same_user(link: socket.socket) -> bool:
    """True if the peer runs as this process's user; also where the system cannot report it."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    _, user, _ = _CREDENTIALS.unpack(link.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return bool(user == os.geteuid())
