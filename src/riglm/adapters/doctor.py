"""Probes of this machine: files, programs, ports and JSON Schema. They block for at most some seconds."""

import http.client
import os
import re
import socket
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for

_OF_OTHERS: Final = 0o077
_VERSION: Final = re.compile(r"riglm (\S+)")
_VERSION_TIMEOUT_SECONDS: Final = 10.0
_LISTENER_TIMEOUT_SECONDS: Final = 2.0
_MAX_FAULT_LENGTH: Final = 200


def shared_mode(path: Path) -> str | None:
    """Return the mode, in octal, of a path that other users of this machine may use; None if they may not."""
    if os.name != "posix":
        return None
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None
    return f"{mode:04o}" if mode & _OF_OTHERS else None


def is_writable(directory: Path) -> bool:
    """True if files can be created in a directory, or it can be created itself."""
    whole = directory.absolute()
    there = next((each for each in (whole, *whole.parents) if each.exists()), whole)
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def version_of_riglm(command: Sequence[str]) -> str | None:
    """Return the version of the riglm that a command line starts; None if it is none, or does not answer in time."""
    end = next((at for at, word in enumerate(command) if word in {"run", "serve"}), 1)
    try:
        done = subprocess.run(
            [*command[:end], "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_VERSION_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.match(done.stdout.decode("utf-8", "replace"))
    return found[1] if found else None


def find_listener(host: str, port: int, serving: str = "") -> tuple[str, bool] | None:
    """Return what listens at an address, and True for a riglm; None if it is free.

    `serving` is what a running `riglm serve` wrote into its lock file: `process N, HOST port P`; empty for none.

    Raises:
        OSError: the address cannot be used: the host is not one of this machine, or the port is privileged.
    """
    if _is_free(host, port):
        return None
    if serving.endswith(f"{host} port {port}"):
        return f"riglm serve ({serving.partition(',')[0]})", True
    is_riglm = _answers_as_riglm(host, port)
    return "a riglm" if is_riglm else "another process", is_riglm


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


def _answers_as_riglm(host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=_LISTENER_TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/health", headers={"Accept": "application/json"})
        body = connection.getresponse().read(65_536)
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return b'"upstreams"' in body and b'"live"' in body


def find_schema_fault(schema: Any) -> str | None:
    """Return why something is no JSON Schema, by the meta-schema that it names or that of 2020-12; None if it is one.

    No reference is followed.
    """
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        place = "/".join(map(str, error.absolute_path))
        words = " ".join(error.message.split())[:_MAX_FAULT_LENGTH]
        return f"{place}: {words}" if place else words
    except RecursionError:
        return "it is nested too deeply"
    return None
