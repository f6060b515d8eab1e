"""What is looked at before the first client comes: whether servers that share one set of names can."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from riglm.application.aggregating.directory import Directory
from riglm.application.aggregating.ensemble import Ensemble
from riglm.application.aggregating.listings import NAMED, Listings
from riglm.application.forwarding.asking import Asking
from riglm.application.forwarding.known_catalogs import KnownCatalogs
from riglm.domain.errors import ConfigurationError
from riglm.domain.jsonrpc import Message
from riglm.ports.upstream import EventMark, Outlet, UpstreamLink, UpstreamPort

PATIENCE_SECONDS: Final = 5.0
"""A server that has not given its lists by then is not looked at; what it claims later is left out and logged."""

_MOST_NAMED: Final = 5
_KIND: Final = {"tools/list": "tool", "prompts/list": "prompt"}
_log: Final = logging.getLogger("riglm.proxy")


async def check_names(
    upstreams: Sequence[UpstreamPort], listings: Listings, patience: float = PATIENCE_SECONDS
) -> None:
    """Ask all servers for what they have, if two of them could claim one name; `patience` is in seconds.

    Raises:
        ConfigurationError: two servers claim one name; both are named.
    """
    if listings.naming != "none" or len(upstreams) < 2:
        return
    directory = Directory([upstream.spec.name for upstream in upstreams], Listings(listings.naming, tells=False))
    asking = Asking()
    ensemble = Ensemble(
        upstreams, _UNHEARD, asking, directory, KnownCatalogs(), grace=patience, on_change=lambda _: None
    )
    try:
        async with asyncio.timeout(patience):
            await ensemble.fetch_all(NAMED)
    except TimeoutError:
        _log.warning("could not look at the names of all servers in time", extra={"seconds": patience})
    finally:
        await ensemble.close()
    found = [
        f"{name!r} is a {_KIND[method]} of {holder!r} and of {other!r}"
        for method in NAMED
        for name, holder, other in directory.joined(method).collisions
    ]
    if found:
        more = f", and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        words = "; ".join(found[:_MOST_NAMED])
        raise ConfigurationError(f"naming: {words}{more}: use `naming: prefix` or `naming: on_collision`")


class _Unheard(Outlet):
    def unsolicited(self, link: UpstreamLink, message: Message, event: EventMark | None = None) -> None:
        """Nobody is there yet."""


_UNHEARD: Final = _Unheard()
