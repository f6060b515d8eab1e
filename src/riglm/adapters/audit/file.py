"""The audit log in a file that several processes append to, or on standard error."""

import contextlib
import logging
import os
import queue
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from riglm.domain.audit import FIRST, AuditEvent, chained, hash_of

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, _FAR, os.SEEK_SET)  # a locked region cannot be read: lock one that holds nothing
        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)


STANDARD_ERROR: Final = "-"
_FAR: Final = 1 << 40
_MAX_QUEUED: Final = 100_000
_MAX_TEXT_LENGTH: Final = 1_024
_TAIL_BYTES: Final = 1 << 20
_CLOSE_SECONDS: Final = 5.0
_log: Final = logging.getLogger("riglm.audit")


class AuditFile:
    """Appends audit records on a separate thread. A record that cannot be written is reported in riglm's log."""

    def __init__(self, place: str) -> None:
        """`place` is a path, or `-` for standard error."""
        self._place = place
        self._previous = FIRST
        self._queue: queue.Queue[Mapping[str, Any] | None] = queue.Queue(_MAX_QUEUED)
        self._is_reported = False
        self._thread = threading.Thread(target=self._run, name="riglm-audit", daemon=True)
        self._thread.start()

    def record(self, event: AuditEvent, about: Mapping[str, Any]) -> None:
        """Queue a record, its texts cut to 1,024 characters; may be called by any thread."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        texts = {name: text[:_MAX_TEXT_LENGTH] for name, text in about.items() if isinstance(text, str)}
        try:
            self._queue.put_nowait({"time": now, "event": event.value, **about, **texts})
        except queue.Full:
            self._report("it cannot be written as fast as records come")

    def close(self) -> None:
        """Write what is queued, for at most five seconds."""
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=_CLOSE_SECONDS)
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        is_open = True
        while is_open:
            batch = [self._queue.get()]
            with contextlib.suppress(queue.Empty):
                while True:
                    batch.append(self._queue.get_nowait())
            records = [each for each in batch if each is not None]
            is_open = len(records) == len(batch)
            try:
                if records:
                    self._write(records)
            except OSError as error:
                self._report(error.strerror or str(error))

    def _write(self, records: Sequence[Mapping[str, Any]]) -> None:
        if self._place == STANDARD_ERROR:
            text, self._previous = _lines(records, self._previous)
            sys.stderr.write(text.decode("ascii"))
            sys.stderr.flush()
            return
        path = Path(self._place).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            _lock(descriptor)
            previous, is_complete = _end(descriptor)
            text, _ = _lines(records, previous)
            rest = memoryview(text if is_complete else b"\n" + text)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        finally:
            os.close(descriptor)

    def _report(self, reason: str) -> None:
        if not self._is_reported:
            self._is_reported = True
            _log.error("audit records are lost: %s", reason, extra={"file": self._place})


def _lines(records: Sequence[Mapping[str, Any]], previous: str) -> tuple[bytes, str]:
    text = []
    for fields in records:
        line, previous = chained(fields, previous)
        text.append(line + "\n")
    return "".join(text).encode("ascii"), previous


def _end(descriptor: int) -> tuple[str, bool]:
    """Return the hash of the last complete line of a file, and whether the file ends with the end of a line."""
    size = os.lseek(descriptor, 0, os.SEEK_END)
    start = os.lseek(descriptor, max(0, size - _TAIL_BYTES), os.SEEK_SET)
    tail = b""
    while len(tail) < size - start and (part := os.read(descriptor, size - start - len(tail))):
        tail += part
    for line in reversed(tail.decode("utf-8", "replace").splitlines()):
        if digest := hash_of(line):
            return digest, tail.endswith(b"\n")
    return FIRST, not tail or tail.endswith(b"\n")
