"""Lets pages of the origins that the configuration names talk to a listener from a browser; no other page can."""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Names in lower case, with values."""

_MINUTES_10: Final = b"600"


class CrossOrigin:
    """Headers that let a page of another origin send requests in a browser, and read the responses.

    Only origins that are named get it: any page that was served on this machine has a loopback origin, so that alone
    is no reason to trust it with what a browser guards.
    """

    def __init__(self, origins: Sequence[str], *, methods: bytes, sent: bytes, exposed: bytes) -> None:
        """`origins` are whole (`https://app.example`).

        `methods` are those that pages may use, `sent` the headers that they may send when they do not say which, and
        `exposed` the headers of answers that they may read; each a list with commas.
        """
        self._origins = {origin.lower().rstrip("/").encode() for origin in origins}
        self._methods = methods
        self._sent = sent
        self._exposed = exposed

    def grant(self, headers: Mapping[bytes, bytes]) -> Headers:
        """The headers that let the page which sent a request read the answer; none if it may not."""
        origin = headers.get(b"origin")
        if origin is None or origin.lower() not in self._origins:
            return ()
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", self._exposed),
            (b"vary", b"origin"),
        )

    def preflight(self, method: str, headers: Mapping[bytes, bytes]) -> Headers:
        """The headers that answer a browser's question whether it may send a request; none when it asks nothing."""
        if method != "OPTIONS" or b"access-control-request-method" not in headers or not self.grant(headers):
            return ()
        wanted = headers.get(b"access-control-request-headers", self._sent)
        private = b"access-control-request-private-network" in headers
        return (
            (b"access-control-allow-methods", self._methods),
            (b"access-control-allow-headers", wanted),
            (b"access-control-max-age", _MINUTES_10),
            *([(b"access-control-allow-private-network", b"true")] if private else []),
        )
