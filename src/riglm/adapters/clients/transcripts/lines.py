"""Files of JSON lines, of any length, read one line at a time."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from riglm.domain.rawjson import has_surrogates, repaired
from riglm.ports.clients import CallOutcome, TranscriptCall, TranscriptEvent, UnreadableLine

MAX_LINE_LENGTH: Final = 32 * 1024 * 1024
"""Longer lines are passed over: a picture takes some megabytes, and reading a line takes several times its size."""

_BLANK: Final = 64
_MAX_TOKENS: Final = 2**40
_PART: Final = 1024 * 1024
_MARK: Final = b"\xef\xbb\xbf"  # a byte order mark, with which some editors begin a file

_Read = TypeVar("_Read")


class TranscriptLine(NamedTuple):
    """A line with its number, counted from 1; `fault` explains why it cannot be read, if that is known at once.

    It `is_whole` when it ends: the last one of a file may still be written.
    """

    number: int
    text: bytes
    is_whole: bool
    fault: str = ""


def lines(file: Path, advance: Callable[[int], None]) -> Iterator[TranscriptLine]:
    """Yield the non-empty lines of a file; `advance` gets the bytes read, at least every mebibyte of lines.

    Raises:
        OSError: it cannot be read.
    """
    number, told = 0, 0
    with file.open("rb") as opened:
        while text := opened.readline(MAX_LINE_LENGTH):
            number += 1
            is_whole = text.endswith(b"\n")
            is_too_long = len(text) == MAX_LINE_LENGTH and not is_whole
            told += len(text)
            while is_too_long and not is_whole and (more := opened.readline(_PART)):
                told += len(more)
                is_whole = more.endswith(b"\n")
            if told >= _PART:
                advance(told)
                told = 0
            if number == 1:
                text = text.removeprefix(_MARK)
            if is_too_long:
                yield TranscriptLine(number, b"", is_whole, "it is too long")
            elif text[:_BLANK].strip():
                yield TranscriptLine(number, text, is_whole, "" if text.startswith(b"{") else "it is no JSON object")
    advance(told)


def events(
    file: Path,
    advance: Callable[[int], None],
    take: Callable[[bytes], Iterable[TranscriptEvent]],
    words: Sequence[bytes] = (b"{",),
) -> Iterator[TranscriptEvent]:
    """Yield what `take` returns for each line that contains one of the words; report the lines that it cannot read.

    Raises:
        OSError: the file cannot be read.
    """
    for number, text, is_whole, fault in lines(file, advance):
        if fault:
            yield UnreadableLine(line=number, reason=fault)
        elif any(word in text for word in words):
            try:
                yield from take(text)
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                if is_whole:
                    yield UnreadableLine(line=number, reason=str(error))


def finished(call: TranscriptCall | None, at: float, ending: CallOutcome) -> list[TranscriptEvent]:
    """Return the call with its end, or nothing if there was none."""
    return [] if call is None else [replace(call, ended=max(call.started, at), ending=ending)]


def text_of(content: Any) -> str:
    """The text of a message: a string, a part with a text, or a list of parts."""
    match content:
        case str():
            return content
        case list():
            return "\n".join(filter(None, map(text_of, content)))
        case {"text": str(text)}:
            return text
        case _:
            return ""


def decoded(read: Callable[[bytes], _Read], text: bytes) -> _Read:
    """What a line holds, U+FFFD where a client cut a letter in two, as JavaScript does. Raises what `read` raises."""
    try:
        return read(text)
    except msgspec.DecodeError:
        if not has_surrogates(text):
            raise
        return read(repaired(text))


def token_counts(given: Any, *names: str) -> list[int]:
    """Return the counts of these names; one that is missing or no count is 0, since a call matters more."""
    counts = given if isinstance(given, dict) else {}
    found = (counts.get(name) for name in names)
    return [count if isinstance(count, int) and 0 <= count < _MAX_TOKENS else 0 for count in found]


def moment(text: str) -> float:
    """The time that an ISO date spells, in seconds since the epoch. Raises `ValueError` for anything else."""
    return datetime.fromisoformat(text).timestamp()


_HEAD: Final = 4096


def head(file: Path) -> bytes:
    """How a file begins. Raises `OSError` when it cannot be read."""
    with file.open("rb") as opened:
        return opened.read(_HEAD).partition(b"\n")[0]


def found_below(place: Path, *patterns: str) -> list[Path]:
    """The files in a folder, however deep, whose names fit one of the patterns; a file is given as it is.

    What is linked to is not followed, so that nothing is found twice. Pipes and devices are no transcripts.

    Raises:
        OSError: the place may not be looked at.
    """
    if place.is_file():
        return [place]
    found = []
    for folder, _, names in os.walk(place):
        fitting = (Path(folder, name) for name in names if any(fnmatch(name, pattern) for pattern in patterns))
        found += [file for file in fitting if file.is_file() and not file.is_symlink()]
    return sorted(found)
