"""One after the other, in turn."""

from threading import Lock
from types import TracebackType
from typing import Self


class Turns:
    """A lock that a thread cannot take twice in a row while another waits for it.

    A plain lock would let a thread that loops over many batches keep the others out.
    """

    def __init__(self) -> None:
        self._next = Lock()
        self._busy = Lock()

    def __enter__(self) -> Self:
        with self._next:
            self._busy.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._busy.release()
