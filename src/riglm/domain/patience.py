"""How long one request waits for shared state, over all that it asks there."""

from contextvars import ContextVar, Token
from typing import Final, Self

_current: Final[ContextVar["Patience | None"]] = ContextVar("riglm-patience", default=None)


class Patience:
    """What is left of a request's time for shared state; as a context, what is asked inside it draws from it."""

    def __init__(self) -> None:
        """Nothing was spent yet."""
        self.spent = 0
        """Slices of the deadline; their length is set by the code that waits for the state."""
        self._tokens: list[Token[Patience | None]] = []

    def __enter__(self) -> Self:
        self._tokens.append(_current.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._tokens.pop())

    @classmethod
    def current(cls) -> "Patience":
        """That of the request which is being served, or a new one outside of requests."""
        return _current.get() or cls()
