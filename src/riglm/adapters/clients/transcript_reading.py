"""Reading of transcripts that all clients share: files found, JSON lines of any length read, events made."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

import msgspec

from riglm.domain.rawjson import has_surrogates, repaired
from riglm.domain.transcripts import (  # fmt: skip
    Advance,
    CallOutcome,
    TranscriptCall,
    TranscriptEvent,
    TranscriptSource,
    UnreadableLine,
    UserMessage,
)

_BLANK: Final = 64
_MAX_TOKENS: Final = 2**40
_PART_BYTES: Final = 1024 * 1024
_MARK: Final = b"\xef\xbb\xbf"  # a byte order mark, with which some editors begin a file
_HEAD_BYTES: Final = 4096
_DAMAGE: Final = (msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""Raised for values that are not what a client writes."""


def events(
    file: Path,
    advance: Advance,
    take: Callable[[dict[str, Any]], Iterable[TranscriptEvent]],
    words: Sequence[bytes] = (b"{",),
) -> Iterator[TranscriptEvent]:
    """Yield what `take` returns for each line that contains one of the words; report the lines that it cannot read.

    `advance` gets the bytes read, at least every mebibyte of lines.

    Raises:
        OSError: the file cannot be read.
    """
    count = 0
    with file.open("rb") as opened:
        for number, line in enumerate(opened, 1):
            count += len(line)
            if count >= _PART_BYTES:
                advance(count)
                count = 0
            text = line.removeprefix(_MARK) if number == 1 else line
            if text[:_BLANK].strip() and not text.startswith(b"{"):
                yield UnreadableLine(line=number, reason="it is no JSON object")
            elif any(word in text for word in words):
                for event in take_safely(number, lambda given: take(decode_json(given)), text):
                    if text.endswith(b"\n") or not isinstance(event, UnreadableLine):  # it may still be written
                        yield event
    advance(count)


def take_safely(
    number: int, take: Callable[..., Iterable[TranscriptEvent]], *arguments: Any
) -> Iterator[TranscriptEvent]:
    """Yield what `take` returns for these arguments, or report that the line of this number cannot be read."""
    try:
        yield from take(*arguments)
    except _DAMAGE as error:
        yield UnreadableLine(line=number, reason=str(error))


def decode_json(text: bytes) -> Any:
    """Return a JSON value, with U+FFFD where a client cut a letter in two, as JavaScript does.

    Raises:
        msgspec.DecodeError: it is no JSON.
    """
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        if not has_surrogates(text):
            raise
        return msgspec.json.decode(repaired(text))


def encode_json(arguments: Any) -> bytes:
    """Return the arguments of a call as JSON."""
    return msgspec.json.encode({} if arguments is None else arguments)


def begin_call(lane: str, identity: str, name: str, arguments: Any, started: float, **others: Any) -> TranscriptCall:
    """Return a call without its end, with its arguments as JSON."""
    given = encode_json(arguments)
    return TranscriptCall(lane=lane, identity=identity, name=name, arguments=given, started=started, **others)


def end_call(call: TranscriptCall | None, at: float, outcome: CallOutcome) -> list[TranscriptEvent]:
    """Return the call with its end, or nothing if there was none."""
    return [] if call is None else [replace(call, ended=max(call.started, at), outcome=outcome)]


def user_message(lane: str, at: float, content: Any) -> list[TranscriptEvent]:
    """Return the message of a user, or nothing if it has no text."""
    text = text_of(content).strip()
    return [UserMessage(lane=lane, at=at, text=text)] if text else []


def text_of(content: Any) -> str:
    """Return the text of a message: a string, a part with a text, or a list of parts."""
    match content:
        case str(text) | {"text": str(text)}:
            return text
        case list():
            return "\n".join(filter(None, map(text_of, content)))
        case _:
            return ""


def token_counts(given: Any, *names: str) -> list[int]:
    """Return the counts of these names; one that is missing or no count is 0, since a call matters more."""
    counts = given if isinstance(given, dict) else {}
    found = (counts.get(name) for name in names)
    return [count if isinstance(count, int) and 0 <= count < _MAX_TOKENS else 0 for count in found]


def moment(text: str) -> float:
    """Return the time that an ISO date names, in seconds since the epoch. Raises `ValueError` for anything else."""
    return datetime.fromisoformat(text).timestamp()


def is_written_by(source: TranscriptSource, file: Path) -> bool:
    """True if a file begins as the transcripts of a client do.

    Raises:
        OSError: it cannot be read.
    """
    with file.open("rb") as opened:
        return source.is_head(opened.read(_HEAD_BYTES).partition(b"\n")[0])


def list_transcripts(source: TranscriptSource, places: Iterable[Path]) -> list[Path]:
    """Return the transcripts of a client in these files and folders, however deep, by name.

    Links in folders are not followed, so that no file is found twice. Pipes and devices are no transcripts.

    Raises:
        OSError: a place may not be read.
    """
    found = []
    for place in places:
        if place.is_file():
            found.append(place)
        for folder, _, names in os.walk(place):
            files = (Path(folder, name) for name in names if fnmatch(name, source.pattern))
            found += [file for file in files if file.is_file() and not file.is_symlink()]
    return sorted(found, key=lambda file: (file.name, file))  # by the time in it, if there is one: origins before forks
