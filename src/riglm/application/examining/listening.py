"""Whether the ports are free, or riglm's own."""

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from riglm.application.examining.check import Check, aside
from riglm.domain.finding import Finding, Section, Severity, finding
from riglm.ports.examining import PortsLookPort

_finding: Final = partial(finding, Section.PORTS)


class Place(NamedTuple):
    """A place to listen at: the section of the configuration that names it, the host and the port, and for what."""

    key: str
    host: str
    port: int
    purpose: str
    is_needed: bool


class PortsCheck(Check):
    """Looks who listens where riglm would."""

    sections = (Section.PORTS,)

    def __init__(self, ports: PortsLookPort, places: Sequence[Place]) -> None:
        """All `places` are looked at; one that is not needed is worth no more than a note."""
        self._ports = ports
        self._places = places

    async def examine(self) -> Sequence[Finding]:
        """A finding for each place."""
        return await aside(lambda: [self._at(place) for place in self._places])

    def _at(self, place: Place) -> Finding:
        name = f"{place.key} {place.host}:{place.port}"
        weight = Severity.WARNING if place.is_needed else Severity.NOTE
        fix = f"choose another one with {place.key}.port, or let riglm choose with 0"
        if not place.port:
            return _finding(Severity.OK, name, f"{place.purpose} takes a free port at its start")
        try:
            other = self._ports.listener(place.host, place.port)
        except OSError as error:
            what = f"{place.purpose} cannot listen there: {error.strerror or error}"
            return _finding(weight, name, what, f"correct {place.key}.host and {place.key}.port")
        if other is None:
            return _finding(Severity.OK, name, f"free for {place.purpose}")
        if other.is_riglm:
            return _finding(Severity.OK, name, f"{other.words} listens there")
        return _finding(weight, name, f"taken by {other.words}: {place.purpose} cannot start", fix)
