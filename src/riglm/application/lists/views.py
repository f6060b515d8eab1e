"""What each session may see of a catalogue, decided once for all sessions that it is the same for."""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from riglm.domain.naming import SEPARATOR
from riglm.domain.override import Override
from riglm.domain.policy import Policy, Standing, by_tool
from riglm.domain.session import Session
from riglm.domain.tool import Catalogue
from riglm.domain.view import View

MOST_VIEWS: Final = 64
"""Views beyond so many are made anew when they are needed again."""


class Views:
    """Applies the policy to whole catalogues."""

    def __init__(
        self,
        policy: Policy,
        overrides: Callable[[], Sequence[Override]] = tuple,
        *,
        owner: Callable[[str], tuple[str, str]] = lambda name: ("", name),
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`overrides` gives all that there are now, and does not block.

        `owner` gives the server of a tool and its own name for it, by the name that clients use.
        """
        self._policy = policy
        self._owner = owner
        self._overrides = overrides
        self._clock = clock
        self._kept: OrderedDict[tuple[int, tuple[Override, ...]], View] = OrderedDict()

    def of(self, session: Session, catalogue: Catalogue) -> View:
        """Return the tools of a catalog that a session may use."""
        overrides = self.concerning(session)
        key = (id(catalogue), overrides)
        view = self._kept.get(key)
        if view is None or view.catalogue is not catalogue:
            view = self._kept[key] = self._made(catalogue, overrides)
            if len(self._kept) > MOST_VIEWS:
                self._kept.popitem(last=False)
        return view

    def standing(self, session: Session, name: str, owner: tuple[str, str] | None = None) -> Standing:
        """What may become of one tool in a session, whether it is in a catalogue or not; `owner` if that is known."""
        overrides = self.concerning(session)
        return self._decided(name, by_tool(overrides) if overrides else None, owner)

    def denies_by_name(self, name: str) -> bool:
        """Whether the deny list means a name, whatever is allowed."""
        return self._policy.denies_by_name(name)

    def concerning(self, session: Session) -> tuple[Override, ...]:
        """The overrides that hold for a session now."""
        everything = self._overrides()
        if not everything:
            return ()
        now, key = self._clock(), str(session.id)
        return tuple(each for each in everything if each.holds(now) and each.concerns(key, session.principal))

    def _decided(
        self, name: str, overrides: Mapping[str, Sequence[Override]] | None, owner: tuple[str, str] | None = None
    ) -> Standing:
        """What may become of a tool, by all its names: a long one is cut for clients, and denied by the whole of it."""
        server, own = owner or self._owner(name)
        return self._policy.decide(name, overrides, (own, f"{server}{SEPARATOR}{own}") if server else ())

    def _made(self, catalogue: Catalogue, overrides: tuple[Override, ...]) -> View:
        mine = by_tool(overrides)
        standings = {name: self._decided(name, mine) for name in catalogue.names}
        shown = (Standing.OPEN, Standing.KEPT)
        if all(standing in shown for standing in standings.values()):
            candidates = catalogue.names
        else:
            candidates = tuple(name for name in catalogue.names if standings[name] in shown)
        return View(
            catalogue=catalogue,
            candidates=candidates,
            kept=frozenset(name for name, standing in standings.items() if standing is Standing.KEPT),
            away=frozenset(name for name, standing in standings.items() if standing is Standing.AWAY),
        )
