"""Tells the filter of every call: how its tool was found, and that it has ended."""

from collections.abc import Callable
from typing import Final

from riglm.application.failing_open import FailingOpen
from riglm.application.forwarding.services import Observer
from riglm.application.showing.contract import Filter
from riglm.domain.invocation import ErrorKind, Found
from riglm.domain.parameters import Parameters
from riglm.domain.session import Session

_NOT_RUN: Final = frozenset({ErrorKind.PROTOCOL, ErrorKind.UNAVAILABLE})
"""How calls end that used no tool."""


class CallWatch(Observer):
    """Watches the calls of one client, or of all clients of the modern era."""

    __slots__ = ("_filtering", "_guarded")

    def __init__(self, filtering: Filter, guarded: FailingOpen) -> None:
        """`guarded` is for all watches."""
        self._filtering = filtering
        self._guarded = guarded

    @property
    def sees_lists(self) -> bool:
        """Lists are noted by whoever composes them; where they pass untouched, nobody does."""
        return self._filtering.is_on

    def calling(
        self, session: Session, tool: str, given: Parameters, *, known: bool
    ) -> tuple[Found, Callable[[ErrorKind | None], None]]:
        """An invocation starts."""
        found = Found.LISTED if known else Found.NAMED
        with self._guarded:
            found = self._found(session, tool, known=known)

        def ended(kind: ErrorKind | None) -> None:
            if kind not in _NOT_RUN:
                with self._guarded:
                    turn_key = self._filtering.turn_key(given.meta)
                    self._filtering.called(session, tool, found, turn_key, success=kind is None)

        return found, ended

    def _found(self, session: Session, tool: str, *, known: bool) -> Found:
        """By the last list that the session was shown; by what the upstream listed if it was shown none.

        A tool that riglm suggested counts as listed: the client did not have to search for it.
        """
        state = self._filtering.state(session)
        is_listed = known if state.shown is None else tool in self._filtering.listed(session)
        if is_listed or tool in state.suggested:
            return Found.LISTED
        return Found.SEARCHED if tool in state.searched else Found.NAMED
