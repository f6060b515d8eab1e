"""The tools that one client gets: in a list, or in the result of a meta-tool."""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from riglm.domain.exposure import Exposure, Mode
from riglm.domain.invocation import Found
from riglm.domain.naming import SEPARATOR
from riglm.domain.policy import Override, Policy, Standing, by_tool
from riglm.domain.session import Session, uuid7
from riglm.domain.tool import Catalogue, View


@dataclass(frozen=True, slots=True)
class ListSelection:
    """The tools that a client gets and those that are hidden from it, in the catalog's order.

    `raw` is a JSON array of the entries of a list; with `is_passthrough` they are those of the upstream's response,
    unchanged. In shadow mode `shown` and `hidden` say what would be. Denied tools are in neither. Tokens are estimates,
    as in an exposure. Selections that differ in bytes or tokens only are equal.
    """

    shown: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    raw: bytes = field(default=b"", compare=False)
    is_passthrough: bool = field(default=False, compare=False)
    predictor: str = ""
    reason: str = ""
    mode: Mode = "off"
    surface: str = ""
    tokens_shown: int = field(default=0, compare=False)
    tokens_hidden: int = field(default=0, compare=False)
    tokens_own: int = field(default=0, compare=False)

    def result(self, tool: str, found: Found) -> Found | None:
        """Return how a call found its tool, None if the list hid nothing; in shadow mode, how it would have."""
        if not self.hidden:
            return None
        if self.mode != "shadow":
            return found
        return Found.LISTED if tool in self.shown else Found.NAMED

    def to_exposure(self, session_id: UUID, timestamp: float) -> Exposure:
        """Return the record that a session was shown this, at a time in seconds since the epoch."""
        return Exposure(
            id=uuid7(),
            session_id=session_id,
            timestamp=timestamp,
            shown=self.shown,
            hidden=self.hidden,
            predictor=self.predictor,
            reason=self.reason,
            mode=self.mode,
            surface=self.surface,
            tokens_shown=self.tokens_shown,
            tokens_hidden=self.tokens_hidden,
            tokens_own=self.tokens_own,
        )


NO_LIST: Final = ListSelection()
"""What a session has before its first list."""


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
