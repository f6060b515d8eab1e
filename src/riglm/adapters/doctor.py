"""Probes of this machine: files, programs, ports, server output and JSON Schema."""

import contextlib
import http.client
import logging
import os
import re
import shutil
import socket
import stat
import subprocess
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for

from riglm.ports.doctor import (
    FileInspectorPort,
    InsecureFile,
    LogCapturePort,
    PortInspectorPort,
    PortOwner,
    ProgramsPort,
    SchemaValidatorPort,
    ServerOutput,
)

_OF_OTHERS: Final = 0o077


class FileInspector(FileInspectorPort):
    """Looks at the files of this machine."""

    def exposed(self, path: Path) -> InsecureFile | None:
        if os.name != "posix":
            return None
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            return None
        return InsecureFile(path=path, mode=f"{mode:04o}") if mode & _OF_OTHERS else None

    def is_file(self, path: Path) -> bool:
        return path.is_file() and os.access(path, os.R_OK)

    def is_writable(self, directory: Path) -> bool:
        there = _there(directory)
        return there.is_dir() and os.access(there, os.W_OK | os.X_OK)

    def free_bytes(self, path: Path) -> int | None:
        try:
            return shutil.disk_usage(_there(path)).free
        except OSError:
            return None


def _there(path: Path) -> Path:
    """The path, or the nearest one above it that there is."""
    whole = path.absolute()
    return next((each for each in (whole, *whole.parents) if each.exists()), whole)


_TIMEOUT_SECONDS: Final = 10.0
_VERSION: Final = re.compile(r"riglm (\S+)")


class Programs(ProgramsPort):
    """The programs of this machine."""

    def found(self, program: str) -> str | None:
        return shutil.which(program)

    def version_of_riglm(self, command: Sequence[str]) -> str | None:
        words = list(command)
        end = next((at for at, word in enumerate(words) if word in {"run", "serve"}), 1)
        try:
            done = subprocess.run(
                [*words[:end], "--version"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        told = _VERSION.match(done.stdout.decode("utf-8", "replace"))
        return told[1] if told else None


_LINES: Final = 10
_LOGGER: Final = "riglm"
_NOISE: Final = "skipped a line that is no message"


class LogCapture(logging.Handler, LogCapturePort):
    """Listens to riglm's log as a context manager; meanwhile nothing of it goes anywhere else."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._said: dict[str, deque[str]] = {}
        self._noise: dict[str, int] = {}
        self._framing: dict[str, str] = {}
        self._before = (logging.NOTSET, True)

    def __enter__(self) -> Self:
        logger = logging.getLogger(_LOGGER)
        self._before = (logger.level, logger.propagate)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logger = logging.getLogger(_LOGGER)
        logger.removeHandler(self)
        logger.setLevel(self._before[0])
        logger.propagate = self._before[1]

    def emit(self, record: logging.LogRecord) -> None:
        """Take down what a record quotes of a server."""
        about = record.__dict__
        name = about.get("upstream")
        if name is None:
            return
        if record.msg == "stderr":
            self._said.setdefault(name, deque(maxlen=_LINES)).append(str(about.get("line", "")).rstrip())
        elif record.msg == _NOISE:
            self._noise[name] = self._noise.get(name, 0) + 1
            if framing := about.get("framing"):
                self._framing[name] = framing

    def heard(self, upstream: str) -> ServerOutput:
        return ServerOutput(
            rate_limited_log=tuple(self._said.get(upstream, ())),
            noise=self._noise.get(upstream, 0),
            framing=self._framing.get(upstream, ""),
        )

    def forget(self, upstream: str) -> None:
        self._said.pop(upstream, None)
        self._noise.pop(upstream, None)
        self._framing.pop(upstream, None)


_LISTENING_TIMEOUT_SECONDS: Final = 2.0
_LISTENS: Final = "0A"


class PortInspector(PortInspectorPort):
    """Tries to bind, and identifies the process that listens already."""

    def __init__(self, known: str = "") -> None:
        """`known` is what a running `riglm serve` wrote down of itself: `process N, HOST port P`; empty for none."""
        self._known = known

    def listener(self, host: str, port: int) -> PortOwner | None:
        """Who listens there; None when the port is free.

        Raises:
            OSError: the address cannot be used: the host is not one of this machine, or the port is privileged.
        """
        if _is_free(host, port):
            return None
        if self._known.endswith(f"{host} port {port}"):
            return PortOwner(words=f"riglm serve ({self._known.partition(',')[0]})", is_riglm=True)
        owner = _owner(port)
        is_riglm = _says_riglm(host, port) or (owner is not None and owner.endswith("(riglm)"))
        if owner is None:
            return PortOwner(words="a riglm" if is_riglm else "another process", is_riglm=is_riglm)
        return PortOwner(words=owner, is_riglm=is_riglm)


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
    connection = http.client.HTTPConnection(host, port, timeout=_LISTENING_TIMEOUT_SECONDS)
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


_MAX: Final = 200


class JsonSchemaValidator(SchemaValidatorPort):
    """Holds schemas against the meta-schema that they name, by default that of 2020-12."""

    def fault(self, schema: Any) -> str | None:
        try:
            validator_for(schema, default=Draft202012Validator).check_schema(schema)
        except SchemaError as error:
            place = "/".join(map(str, error.absolute_path))
            words = " ".join(error.message.split())[:_MAX]
            return f"{place}: {words}" if place else words
        except RecursionError:
            return "it is nested too deeply"
        return None
