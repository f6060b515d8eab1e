"""The audit log in a file that several processes append to, or on standard error."""

import contextlib
import logging
import os
import queue
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, Final

from riglm.adapters.private_files import lock
from riglm.domain.audit import FIRST, AuditEvent, AuditLog, chained, hash_of

STANDARD_ERROR: Final = "-"
_MAX_QUEUED: Final = 100_000
_MAX_TEXT_LENGTH: Final = 1_024
_TAIL_BYTES: Final = 1 << 20
_CLOSE_SECONDS: Final = 5.0
_log: Final = logging.getLogger("riglm.audit")


@contextlib.contextmanager
def audit_log(place: str) -> Iterator[AuditLog]:
    """Yield what appends to the audit log at a path, or on standard error if `place` is `-`."""
    file = AuditFile(place)
    try:
        yield file.record
    finally:
        file.close()


class AuditFile:
    """Appends audit records on a separate thread.

    riglm's log has an error at the beginning of each outage, and the number of lost records at its end.
    """

    def __init__(self, place: str) -> None:
        """`place` is a path, or `-` for standard error."""
        self._place = place
        self._previous = FIRST
        self._queue: queue.Queue[Mapping[str, Any] | None] = queue.Queue(_MAX_QUEUED)
        self._in_hand = 0
        self._lost = 0
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
            self._lost += 1
            self._report("audit records are lost: it cannot be written as fast as records come")

    def close(self) -> None:
        """Write what is queued, for at most five seconds."""
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=_CLOSE_SECONDS)
        self._thread.join(_CLOSE_SECONDS)
        with self._queue.mutex:
            waiting = sum(each is not None for each in self._queue.queue)
        if lost := self._lost + self._in_hand + waiting:
            _log.error("%d audit records could not be written before the end", lost, extra={"file": self._place})

    def _run(self) -> None:
        is_open = True
        while is_open:
            batch = [self._queue.get()]
            with contextlib.suppress(queue.Empty):
                while True:
                    batch.append(self._queue.get_nowait())
            records = [each for each in batch if each is not None]
            is_open = len(records) == len(batch)
            self._in_hand = len(records)
            try:
                if records:
                    self._write(records)
            except OSError as error:
                self._lost += len(records)
                self._report(f"audit records are lost: {error.strerror or error}")
            else:
                self._recover()
            self._in_hand = 0

    def _write(self, records: Sequence[Mapping[str, Any]]) -> None:
        if self._place == STANDARD_ERROR:
            text, self._previous = _lines(records, self._previous)
            sys.stderr.write(text.decode("ascii"))
            sys.stderr.flush()
            return
        path = Path(self._place).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a+b", buffering=0, opener=partial(os.open, mode=0o600)) as file:
            lock(file.fileno(), waits=True)
            previous, is_complete = _end(file)
            text, _ = _lines(records, previous)
            _append(file.fileno(), text if is_complete else b"\n" + text)

    def _report(self, problem: str) -> None:
        """Log the beginning of an outage."""
        if not self._is_reported:
            self._is_reported = True
            _log.error(problem, extra={"file": self._place})

    def _recover(self) -> None:
        """Log the end of an outage, if there was one."""
        if self._is_reported:
            lost, self._lost, self._is_reported = self._lost, 0, False
            _log.warning("audit records are written again; %d were lost", lost, extra={"file": self._place})


def _append(descriptor: int, text: bytes) -> None:
    """Append all of the text or nothing: what a full disk took of it is removed."""
    size, rest = os.lseek(descriptor, 0, os.SEEK_END), memoryview(text)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, size)
        raise


def _lines(records: Sequence[Mapping[str, Any]], previous: str) -> tuple[bytes, str]:
    text = []
    for fields in records:
        line, previous = chained(fields, previous)
        text.append(line + "\n")
    return "".join(text).encode("ascii"), previous


def _end(file: FileIO) -> tuple[str, bool]:
    """Return the hash of the last complete record of a file, and whether the file ends with the end of a line."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
    tail = file.read()
    digests = map(hash_of, reversed(tail.decode("utf-8", "replace").splitlines()))
    return next(filter(None, digests), FIRST), not tail or tail.endswith(b"\n")
