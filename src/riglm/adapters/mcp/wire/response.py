"""The result of an HTTP exchange, as its caller gets it."""

from collections.abc import Sequence
from typing import Protocol

from riglm.domain.errors import RiglmError


class Headers:
    """The headers of one answer, names in lower case.

    Of a header that came more than once `get` gives the first, so that nothing appended later can replace it; `pairs`
    holds all of them in the order they came.
    """

    __slots__ = ("_first", "pairs")

    def __init__(self, pairs: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self.pairs = pairs
        self._first = dict(reversed(pairs))

    def get(self, name: bytes) -> bytes | None:
        """The first value of the header with this lower-case name; None when it did not come."""
        return self._first.get(name)

    def all(self, name: bytes) -> list[bytes]:
        """Every value of the header with this lower-case name, in the order they came."""
        return [value for each, value in self.pairs if each == name]


class HttpFailure(RiglmError):
    """The exchange did not come to its end; the message names the target, without credentials, and what happened."""

    def __init__(self, message: str, *, sent: bool, reused: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        """Whether any of the request may have left; if not, sending it again is safe."""
        self.reused = reused
        """The connection had served before and closed without a byte of an answer.

        Most likely the server had closed it while it was idle and never saw the request, but that is not certain.
        """


class ResponseSink(Protocol):
    """Receives one response as it comes: `head`, any number of `data`, then exactly one of `end` and `failed`.

    `failed` may come at any moment, before `head` too. Nothing comes after either of them, or after `Exchange.abort`.
    A sink should not raise: what `head` or `data` raises is logged, the connection is closed, and `failed` is called;
    what `end` or `failed` raises is logged.
    """

    def head(self, status: int, headers: Headers) -> None:
        """The status (200 to 599; interim answers are not reported) and the headers."""
        ...

    def data(self, chunk: bytes) -> None:
        """The next bytes of the body, never empty, with chunked coding taken off."""
        ...

    def end(self) -> None:
        """The answer is complete."""
        ...

    def failed(self, failure: HttpFailure) -> None:
        """The answer will not be complete."""
        ...
