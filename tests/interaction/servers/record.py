"""What reached a server, written down byte for byte."""

import json
import os
import time
from typing import Any


class Record:
    """Appends one JSON line for every message and event; several processes may share the file."""

    def __init__(self, path: str | None) -> None:
        self._file = None if path is None else os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def received(self, raw: bytes, headers: dict[str, str] | None = None) -> None:
        """A message came in; `headers` are those of its HTTP request, with lower-case names."""
        self.event("received", raw=raw.decode("latin-1"), headers=headers or {})

    def event(self, kind: str, **details: Any) -> None:
        """Something happened."""
        if self._file is None:
            return
        entry = {"event": kind, "pid": os.getpid(), "at": time.monotonic(), **details}
        data = json.dumps(entry).encode() + b"\n"
        while data:
            data = data[os.write(self._file, data) :]
