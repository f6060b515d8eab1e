"""Which processes changed a kept value last, each by the number of the change that is in it.

So whoever got no answer to a change finds out later whether it is in what others made of the value since.
"""

from collections.abc import Mapping
from typing import Final

MOST_WRITERS: Final = 16
"""So many processes are told of, the latest; whoever changes a value less often may count a lost change twice."""

_LONGEST_NUMBER: Final = 16

Writers = Mapping[str, int]
"""The number of the last change of each process, the latest process last."""


def changed_by(writers: Writers, name: str, number: int) -> Writers:
    """The writers after one more change, of the process that is called so."""
    others = [(other, known) for other, known in writers.items() if other != name]
    return dict([*others, (name, number)][-MOST_WRITERS:])


def head(revision: int, writers: Writers) -> bytes:
    """A line, without its end, that tells the revision of a value and who changed it."""
    return " ".join([str(revision), *(f"{name}={number}" for name, number in writers.items())]).encode("ascii")


def read_head(line: bytes) -> tuple[int, Writers] | None:
    """The revision and the writers of a line that `head` wrote; None for any other."""
    revision, *rest = line.split(b" ")
    pairs = [word.partition(b"=") for word in rest]
    numbers = [revision, *(number for _, _, number in pairs)]
    if not all(number.isdigit() and len(number) < _LONGEST_NUMBER for number in numbers):
        return None
    return int(revision), {name.decode("ascii", "replace"): int(number) for name, _, number in pairs}
