"""Bytes that arrive in pieces and are wanted whole."""

SMALL = 4096


class Gathering:
    """Pieces of one run of bytes, joined once when the last has come.

    Adding is linear in time however many pieces come, and holds little more than the bytes themselves however small
    the pieces are.
    """

    __slots__ = ("_pieces", "size")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.size = 0
        """Bytes added since the last `take` or `drop`."""

    def add(self, piece: bytes) -> None:
        """Keep a piece."""
        self.size += len(piece)
        pieces = self._pieces
        if pieces and len(piece) < SMALL and len(pieces[-1]) < SMALL:
            pieces[-1] += piece  # a sender that drips single bytes must not cost an object for each
        else:
            pieces.append(piece)

    def take(self, last: bytes) -> bytes:
        """Everything added, with `last` at its end; what was gathered is forgotten."""
        if not self._pieces:
            return last
        whole = b"".join((*self._pieces, last))
        self.drop()
        return whole

    def drop(self) -> None:
        """Forget what was gathered."""
        self._pieces.clear()
        self.size = 0
