"""The requests that wait for an answer on one channel."""

from collections.abc import Callable, Iterator

from riglm.adapters.mcp.upstream.deadlines import Deadlines, Patience, Waiting
from riglm.domain.invocation import ErrorKind
from riglm.ports.upstream import Reply


class Pending:
    """Finds a waiting request by the key of its id, as the server knows it, or by its reply; ends each one once."""

    def __init__(self, name: str, patience: Patience, on_expiry: Callable[[bytes, Reply], None]) -> None:
        """`on_expiry` gets the key of a request that timed out, before it fails."""
        self._name = name
        self._on_expiry = on_expiry
        self._deadlines = Deadlines(name, patience)
        self._by_key: dict[bytes, Waiting] = {}
        self._key_of: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: bytes) -> bool:
        return key in self._by_key

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._by_key.values())

    @property
    def only(self) -> Waiting | None:
        """The one request that waits, None when there are none or several."""
        return next(iter(self)) if len(self) == 1 else None

    def add(self, key: bytes, reply: Reply) -> None:
        """A request was sent."""
        waiting = self._by_key[key] = self._deadlines.add(reply, self._expired)
        waiting.key = key
        self._key_of[id(reply)] = key

    def get(self, key: bytes) -> Waiting | None:
        """The request with this key, which goes on waiting."""
        return self._by_key.get(key)

    def pop(self, key: bytes) -> Waiting | None:
        """The request with this key, which waits no longer."""
        waiting = self._by_key.pop(key, None)
        if waiting is not None:
            self._key_of.pop(id(waiting.reply), None)
            self._deadlines.remove(waiting)
        return waiting

    def withdraw(self, reply: Reply) -> bytes | None:
        """Forget a request that was given up; the key that it had, None when it waits no longer."""
        key = self._key_of.get(id(reply))
        if key is not None:
            self.pop(key)
        return key

    def fail(self, key: bytes, kind: ErrorKind, words: str) -> bool:
        """End one request without an answer; False when it waits no longer."""
        waiting = self.pop(key)
        if waiting is not None:
            waiting.reply.failed(kind, f"upstream {self._name!r} {words}")
        return waiting is not None

    def fail_all(self, kind: ErrorKind, words: str) -> None:
        """End every request without an answer; those that are added meanwhile are not touched."""
        for key in list(self._by_key):
            self.fail(key, kind, words)

    def missed(self, words: str, key: bytes | None) -> None:
        """A response was lost: that to one request, or to an unknown one."""
        if key is None:
            self.fail_all(ErrorKind.PROTOCOL, words)
        else:
            self.fail(key, ErrorKind.PROTOCOL, words)

    def close(self) -> None:
        """End every request, and stop the timeouts."""
        self.fail_all(ErrorKind.UNKNOWN, "did not answer before the link to it was closed")
        self._deadlines.close()

    def _expired(self, waiting: Waiting) -> None:
        self.pop(waiting.key)
        self._on_expiry(waiting.key, waiting.reply)
