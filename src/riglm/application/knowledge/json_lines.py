"""Files of JSON lines: read line by line, however long the file is."""

import codecs
import json
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from riglm.domain.errors import UnusableInputError

JsonRow: TypeAlias = Mapping[str, Any]
"""One JSON object of a file."""

MAX: Final = 16 << 20
"""The longest line that is read, in bytes."""


class UnreadableFileError(UnusableInputError):
    """Raised when a file is missing or not readable. The message names the file and the fix."""


class InvalidLineError(ValueError):
    """Raised when a line is invalid. The message contains the reason and the fix, not the location."""


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, by number, the first being 1; of one that is too long the beginning.

    Raises:
        UnreadableFileError: it is no file, or cannot be read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            raise UnreadableFileError(f"{path}: this is no file — fix: put a file of JSON lines there")
        with path.open("rb") as file:
            number = 0
            while line := file.readline(MAX + 1):
                number += 1
                rest = line
                while len(rest) > MAX and not rest.endswith(b"\n"):
                    rest = file.readline(MAX + 1)
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                if line.strip():
                    yield number, line
    except OSError as error:
        raise UnreadableFileError(f"{path}: {error.strerror} — fix: put a file there that you may read") from error


def decoded(line: bytes) -> str:
    """A line as text.

    Raises:
        InvalidLineError: it is too long, or not UTF-8.
    """
    if len(line) > MAX:
        raise InvalidLineError(f"the line is longer than {MAX >> 20} MiB — fix: one JSON object on each line")
    try:
        return line.decode().rstrip()
    except UnicodeDecodeError as error:
        raise InvalidLineError(f"byte {error.start + 1} is not UTF-8 — fix: save the file in UTF-8") from error


def object_of(line: bytes) -> JsonRow:
    """The JSON object that a line is.

    Raises:
        InvalidLineError: it is none.
    """
    text = decoded(line)
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        reason = f"this is not JSON (column {error.colno}: {error.msg})"
    except RecursionError:
        reason = "the values are nested too deeply"
    except ValueError:
        reason = "a number has too many digits"
    else:
        if isinstance(value, dict):
            return value
        reason = f"this is not a JSON object but {_kind(value)}"  # which may be private
    raise InvalidLineError(f"{reason} — fix: one JSON object on each line")


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case _:
            return "a list"
