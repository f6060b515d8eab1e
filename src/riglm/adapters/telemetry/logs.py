"""Structured logs: one JSON object a line on stderr, without secrets, never in the way of a call.

What is logged through the standard library's `logging` is taken down at once, and made JSON and written by a thread of
own, so that a client that does not read stderr cannot hold up riglm. The thread starts with the first record.
"""

import copy
import json
import logging
import os
import queue
import threading
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from select import select
from typing import Final, Self

from riglm.domain.redaction import MASK, Redactor, sounds_secret

STDERR: Final = 2
CAPACITY: Final = 4096
"""Maximum number of records that wait to be written; more are dropped and counted."""

_MAX_TEXT_LENGTH: Final = 16_384
_DEEPEST: Final = 6
_TIMEOUT_S: Final = 2.0

_STANDARD: Final = frozenset(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {"message", "asctime"}


class JsonLogs(logging.Handler):
    """Writes records to a file descriptor that stays the caller's: as JSON lines, or as text on a terminal.

    `dropped` counts the records that found the queue full or stderr unread. As a context manager it attaches itself
    on the root logger, and on leaving writes what is left, within two seconds, and takes itself off.
    """

    def __init__(self, *, level: str = "info", secrets: Iterable[str] = (), descriptor: int = STDERR) -> None:
        super().__init__()
        self.dropped = 0
        self._threshold = level.upper()
        self._formatter = TextFormatter if os.isatty(descriptor) else JsonFormatter
        self.setFormatter(self._formatter(secrets))
        self._descriptor = descriptor
        self._records: queue.Queue[logging.LogRecord | None] = queue.Queue(CAPACITY)
        self._writer: threading.Thread | None = None
        self._given_up = False
        self._plain = logging.Formatter()

    def follow(self, level: str, secrets: Iterable[str]) -> None:
        """Take what riglm logs from another level on, and cover these secrets; on any thread."""
        self._threshold = level.upper()
        self.setFormatter(self._formatter(secrets))
        logging.getLogger("riglm").setLevel(self._threshold)

    def __enter__(self) -> Self:
        logging.getLogger().addHandler(self)
        logging.getLogger("riglm").setLevel(self._threshold)
        logging.captureWarnings(capture=True)
        return self

    def __exit__(self, *_: object) -> None:
        logging.captureWarnings(capture=False)
        logging.getLogger("riglm").setLevel(logging.NOTSET)
        logging.getLogger().removeHandler(self)
        self.close()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record; everything that may change or hold memory is made text first."""
        try:
            record = copy.copy(record)
            record.msg, record.args = record.getMessage(), ()
            if record.exc_info:
                record.exc_text = self._plain.formatException(record.exc_info)
                record.exc_info = None
            self._records.put_nowait(record)
        except queue.Full:
            self.dropped += 1
        except Exception:  # noqa: BLE001  # a record that cannot be read must not reach its caller
            self.dropped += 1
        else:
            if self._writer is None:
                writer = threading.Thread(target=self._write_all, name="riglm-logs", daemon=True)
                with suppress(RuntimeError):  # no thread is allowed now: the next record tries again
                    writer.start()
                    self._writer = writer

    def close(self) -> None:
        """Write what is left, for at most two seconds."""
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                self._records.put(None, timeout=_TIMEOUT_S)
            except queue.Full:
                self._given_up = True
            else:
                writer.join(_TIMEOUT_S)
        super().close()

    def _write_all(self) -> None:
        told = 0
        while not self._given_up and (record := self._records.get()) is not None:
            if self.dropped > told:
                count, told = self.dropped - told, self.dropped
                lost = f"{count} log records were dropped"
                self._write(logging.LogRecord("riglm.logs", logging.WARNING, "", 0, lost, (), None))
            self._write(record)

    def _write(self, record: logging.LogRecord) -> None:
        try:
            rest = memoryview(self.format(record).encode("ascii") + b"\n")
        except Exception:  # noqa: BLE001  # a value that cannot be shown must not end the thread
            self.dropped += 1
            return
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                select([], [self._descriptor], [], _TIMEOUT_S)
            except OSError:
                self.dropped += 1
                return


class JsonFormatter(logging.Formatter):
    """Makes a record one line of JSON: timestamp, level, logger, event, what `extra` added, and the exception's text.

    Secrets are covered in all texts, long texts cut, and every character but plain ASCII escaped, so that nothing that
    is logged can end the line.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._redactor = Redactor(secrets)

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        return json.dumps(self._fields(record))

    def _fields(self, record: logging.LogRecord) -> dict[str, object]:
        fields: dict[str, object] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": self._clean(record.getMessage()),
        }
        for name, value in record.__dict__.items():
            if name not in _STANDARD and name not in fields:
                fields[name] = self._clean(value, name)
        if record.exc_text:
            fields["exception"] = self._clean(record.exc_text)
        return fields

    def _clean(self, value: object, name: str = "", depth: int = 0) -> object:
        if isinstance(value, bool | int | float) or value is None:
            return value
        if isinstance(value, dict) and depth < _DEEPEST:
            return {str(key): self._clean(item, str(key), depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset) and depth < _DEEPEST:
            return [self._clean(item, name, depth + 1) for item in value]
        if sounds_secret(name):
            return MASK
        # Cut once more at the end, far before the place where the first cut may have left half a secret.
        return self._redactor(str(value)[: 4 * _MAX_TEXT_LENGTH])[:_MAX_TEXT_LENGTH]


class TextFormatter(JsonFormatter):
    """Formats a record as one line for people: time, level, event and fields. Secrets are masked as in JSON lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end; control characters are escaped."""
        fields = self._fields(record)
        event = json.dumps(fields.pop("event"))[1:-1]
        time, level = str(fields.pop("timestamp"))[11:19], fields.pop("level")
        fields.pop("logger")
        return " ".join([time, f"{level:7}", event, *(f"{name}={json.dumps(value)}" for name, value in fields.items())])
