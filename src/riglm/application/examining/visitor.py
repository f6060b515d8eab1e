"""Who visits the servers of all configurations that are examined."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Final

from riglm.application.examining.visit import Visit, visit
from riglm.domain.upstream import UpstreamSpec
from riglm.ports.examining import Heard, OverhearingPort
from riglm.ports.upstream import UpstreamPort

_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Visited:
    """What came of a visit, and what the server said meanwhile beside the protocol."""

    visit: Visit
    heard: Heard


class Visitor:
    """Visits many servers at once; one that stands in several configurations only once.

    Servers of one name that are not the same are visited one after the other: what is heard beside the protocol is
    heard by name.
    """

    def __init__(self, overhearing: OverhearingPort, seconds: float) -> None:
        """Each visit lasts at most so many seconds, and as many again for the server to end."""
        self._overhearing = overhearing
        self._seconds = seconds
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._visits: list[tuple[UpstreamSpec, asyncio.Task[Visited]]] = []

    async def visit(self, upstream: UpstreamPort) -> Visited:
        """What comes of a visit to a server; whoever asks first keeps it open until then."""
        spec = upstream.spec
        nameless = replace(spec, name="")
        task = next((task for known, task in self._visits if known == nameless), None)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._visited(upstream))
            self._visits.append((nameless, task))
        found = await asyncio.shield(task)
        return Visited(replace(found.visit, spec=spec), found.heard)

    async def _visited(self, upstream: UpstreamPort) -> Visited:
        name = upstream.spec.name
        async with self._turns[name], self._room:
            self._overhearing.forget(name)
            first: list[Heard] = []
            found = await visit(upstream, self._seconds, lambda: first.append(self._overhearing.heard(name)))
            return Visited(found, first[0] if first else self._overhearing.heard(name))
