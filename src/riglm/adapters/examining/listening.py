"""Who listens on a port of this machine. No port is taken for longer than it takes to see that it is free."""

import contextlib
import http.client
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from riglm.ports.examining import Listener, PortsLookPort

_PATIENCE_SECONDS: Final = 2.0
_LISTENS: Final = "0A"


class PortsLook(PortsLookPort):
    """Tries to bind, and identifies the process that listens already."""

    def __init__(self, known: str = "") -> None:
        """`known` is what a running `riglm serve` wrote down of itself: `process N, HOST port P`; empty for none."""
        self._known = known

    def listener(self, host: str, port: int) -> Listener | None:
        """Who listens there; None when the port is free.

        Raises:
            OSError: the address cannot be used: the host is not one of this machine, or the port is privileged.
        """
        if _is_free(host, port):
            return None
        if self._known.endswith(f"{host} port {port}"):
            return Listener(words=f"riglm serve ({self._known.partition(',')[0]})", is_riglm=True)
        owner = _owner(port)
        is_riglm = _says_riglm(host, port) or (owner is not None and owner.endswith("(riglm)"))
        if owner is None:
            return Listener(words="a riglm" if is_riglm else "another process", is_riglm=is_riglm)
        return Listener(words=owner, is_riglm=is_riglm)


def _is_free(host: str, port: int) -> bool:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        if os.name == "posix":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that ended just now do not count
        try:
            probe.bind(address)
        except OSError as error:
            if isinstance(error, PermissionError) or "in use" not in str(error).lower():
                raise
            return False
    return True


def _says_riglm(host: str, port: int) -> bool:
    """Whether what is there answers as riglm's control API or its MCP endpoint do."""
    connection = http.client.HTTPConnection(host, port, timeout=_PATIENCE_SECONDS)
    try:
        connection.request("GET", "/health", headers={"Accept": "application/json"})
        answer = connection.getresponse()
        told = answer.read(65_536).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return False
    else:
        return '"upstreams"' in told and '"live"' in told
    finally:
        connection.close()


def _owner(port: int) -> str | None:
    """Return the process that listens on a port, where the system reports it to this user."""
    sockets = {inode for table in ("tcp", "tcp6") for inode in _listening(Path("/proc/net") / table, port)}
    if not sockets:
        return None
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            target = descriptor.readlink().name
            if target.startswith("socket:[") and target[8:-1] in sockets:
                process = descriptor.parents[1]
                words = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                return f"process {process.name} ({_name(words)})"
    return None


def _name(words: Sequence[str]) -> str:
    """What a process is called by the words that it was started with; of riglm's, what it is called itself."""
    names = [Path(word).name for word in words[:2]]
    return "riglm" if "riglm" in names or list(words[1:3]) == ["-m", "riglm"] else names[0]


def _listening(table: Path, port: int) -> Iterator[str]:
    """The inodes of the sockets that listen on a port, in one of the kernel's tables."""
    with contextlib.suppress(OSError):
        for line in table.read_text("ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]
