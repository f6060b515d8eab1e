"""Surfaces: how a selection of tools reaches a client."""

from collections.abc import Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

from riglm.domain.session import Era


class Surface(StrEnum):
    """How a selection reaches the client.

    `DYNAMIC`: the list itself is short and changes with the session. `STABLE`: the list is a learned warm set that
    lasts for an epoch, and what is needed now travels in results. `HINTS`: the list is whole, and the warm set is
    marked as worth loading. `FULL`: the list is whole.
    """

    DYNAMIC = "dynamic"
    STABLE = "stable"
    HINTS = "hints"
    FULL = "full"


KNOWN_CLIENTS: Final[Mapping[str, Surface]] = {"claude-code": Surface.HINTS}
"""Clients that honor preload hints, and defer the other tools to their own search."""


def surface_for(client: str, era: Era, by_client: Mapping[str, Surface]) -> Surface:
    """The surface for a client by what it calls itself, else by its era.

    `by_client` has glob patterns for names, the first that fits counts; `KNOWN_CLIENTS` come after them. Names are
    compared without regard to case. They are self-reported, which is good enough for a choice that is no right.
    """
    name = client.casefold()
    for table in (by_client, KNOWN_CLIENTS):
        for pattern, surface in table.items():
            if fnmatchcase(name, pattern.casefold()):
                return surface
    return Surface.STABLE if era is Era.MODERN else Surface.DYNAMIC
