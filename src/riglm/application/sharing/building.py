"""Puts together what lets several processes be one."""

from typing import Protocol

from riglm.application.lists.predicting import Predicting
from riglm.application.recording.tracking import TrackingService
from riglm.application.sessions.registry import SessionRegistry
from riglm.application.sharing.news import News
from riglm.application.sharing.sealing import Sealer
from riglm.application.sharing.shared_links import SharedLinks
from riglm.application.sharing.shared_sessions import SharedSessions
from riglm.application.sharing.sharing import Sharing
from riglm.domain.session import Session
from riglm.domain.session_state import SessionState
from riglm.ports.session_state import SessionStatePort


class Filter(Protocol):
    """Who remembers how far sessions have come."""

    @property
    def predicting(self) -> Predicting:
        """Who embeds contexts."""
        ...

    def state(self, session: Session) -> SessionState:
        """How far a session has come."""
        ...


def build_sharing(
    state: SessionStatePort,
    secret: bytes,
    registry: SessionRegistry,
    tracking: TrackingService,
    filtering: Filter | None,
    *,
    link_seconds: float,
    session_seconds: float,
) -> Sharing:
    """What the HTTP side asks; `filtering` is None when nothing is filtered.

    Connections of which nothing is heard are kept for `link_seconds`, sessions for `session_seconds`, which is no less.
    """
    sealer = Sealer(secret)
    if filtering is None:
        sessions = SharedSessions(state, sealer, registry, _unfiltered, _unread, session_seconds)
    else:

        async def read(session: Session, progress: SessionState, text: str) -> None:
            await filtering.predicting.set_context(session, progress, text)  # whatever predicts by then

        sessions = SharedSessions(state, sealer, registry, filtering.state, read, session_seconds)
    tracking.when_closed(sessions.forget)
    return Sharing(SharedLinks(state, sealer, sessions, link_seconds), sessions, registry, News(state, sealer))


def _unfiltered(_: Session) -> None:
    """Nothing is remembered."""


async def _unread(_: Session, __: SessionState, ___: str) -> None:
    """Nobody goes by a context."""
