"""Whether several servers are served in the modern era."""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Mapping
from functools import partial
from typing import Final

from riglm.application.conversations.stateless import EraProbe
from riglm.application.forwarding.known_catalogs import KnownCatalogs
from riglm.domain.session import Era
from riglm.ports.upstream import UpstreamLink, UpstreamPort

RETRY_SECONDS: Final = 5.0
"""For so long a server that could not be asked is left alone."""

_log = logging.getLogger("riglm.proxy")


class Consensus:
    """The modern era takes all servers, the handshake any mix of them.

    A server that only knows the handshake, and one that is still to answer its first question, send a client that asks
    for the era to the handshake; one that cannot be reached does not count. What was granted once is not taken back: a
    server that turns out to lack the modern era later is left out instead. A client that speaks the modern era without
    asking for it is served by those that answer.
    """

    def __init__(
        self,
        upstreams: Mapping[str, UpstreamPort],
        links: Mapping[str, UpstreamLink],
        grace: float,
        catalogs: KnownCatalogs,
    ) -> None:
        """No server is asked yet. Requests wait for the answers for `grace` seconds from the question on.

        Servers with a known catalog of the era are expected to support it still, and are not waited for.
        """
        self._upstreams = upstreams
        self._links = links
        self._grace = grace
        self._catalogs = catalogs
        self._probes = {name: EraProbe(up, links[name], silence_tells=False) for name, up in upstreams.items()}
        self._silent: set[str] = set()
        self._all_answered = asyncio.Event()
        self._asked_at: dict[str, float] = {}
        self._granted = False
        self._left_out: set[str] = set()

    @property
    def is_granted(self) -> bool:
        """Whether the modern era is served, so that nobody waits for any answer."""
        return self._granted

    async def reached(self, *, asked_for: bool) -> bool:
        """Whether a request of the modern era is served; `asked_for`: it is a `server/discover`."""
        self._ask()
        left = self._grace_left()
        if left > 0.0 and not self._granted:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_answered.wait(), left)
        if self._granted:
            return True
        verdicts = [self._supports(name) for name in self._upstreams]
        possible = any(verdicts) and all(verdict is not False for verdict in verdicts)
        self._granted = possible and not self._silent
        return self._granted or (possible and not asked_for)

    def links(self) -> dict[str, UpstreamLink]:
        """The links to the servers that take part."""
        taking_part = {}
        for name, upstream in self._upstreams.items():
            if upstream.supports(Era.MODERN) is not False:
                taking_part[name] = self._links[name]
            elif name not in self._left_out:
                self._left_out.add(name)
                _log.warning("left out a server that only knows the handshake", extra={"upstream": name})
        return taking_part

    def _supports(self, name: str) -> bool | None:
        told = self._upstreams[name].supports(Era.MODERN)
        return True if told is None and self._is_expected(name) else told

    def _is_expected(self, name: str) -> bool:
        """Whether a server supported the era before."""
        variant = self._catalogs.variant_for(Era.MODERN)
        return self._catalogs.find(self._upstreams[name].spec, variant) is not None

    def _grace_left(self) -> float:
        """For how many seconds more the silent are waited for; who is late is not, until it answers."""
        asked_at = max((self._asked_at[name] for name in self._silent), default=-math.inf)
        return asked_at + self._grace - time.monotonic()

    def _ask(self) -> None:
        now = time.monotonic()
        for name, upstream in self._upstreams.items():
            asked_at = self._asked_at.get(name)
            due = asked_at is None or asked_at + RETRY_SECONDS < now
            if upstream.supports(Era.MODERN) is None and name not in self._silent and due:
                if asked_at is None and not self._is_expected(name):
                    self._silent.add(name)
                    self._all_answered.clear()
                self._asked_at[name] = now
                self._probes[name].ask(partial(self._answered, name))

    def _answered(self, name: str, _: bool | None) -> None:
        self._silent.discard(name)
        if not self._silent:
            self._all_answered.set()
