"""Recently requested vectors."""

from collections import OrderedDict
from threading import Lock
from typing import Final

from riglm.domain.prediction import Vector

_OVERHEAD_BYTES: Final = 400


class RecentVectors:
    """Keeps the vectors asked for last, up to a number of bytes. May be used by several threads."""

    def __init__(self, most_bytes: int) -> None:
        """Keep nothing yet, and never more than `most_bytes`."""
        self._most_bytes = most_bytes
        self._bytes = 0
        self._vectors: OrderedDict[tuple[str, str], Vector] = OrderedDict()
        self._lock = Lock()

    def get(self, model: str, text_hash: str) -> Vector | None:
        """The vector, if it is kept."""
        with self._lock:
            vector = self._vectors.get((model, text_hash))
            if vector is not None:
                self._vectors.move_to_end((model, text_hash))
            return vector

    def put(self, model: str, text_hash: str, vector: Vector) -> None:
        """Keep a copy, and remove the least recently used."""
        kept = vector.copy()
        kept.flags.writeable = False
        with self._lock:
            before = self._vectors.pop((model, text_hash), None)
            self._bytes += _size(kept) - (_size(before) if before is not None else 0)
            self._vectors[model, text_hash] = kept
            while self._bytes > self._most_bytes:
                _, dropped = self._vectors.popitem(last=False)
                self._bytes -= _size(dropped)


def _size(vector: Vector) -> int:
    return vector.nbytes + _OVERHEAD_BYTES
