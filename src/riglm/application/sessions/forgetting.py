"""Sessions that go on when they are forgotten: what is remembered of them till then is let go."""

from collections.abc import Callable, Iterable, Sequence

from riglm.application.sessions.registry import SessionRegistry
from riglm.domain.forgetting import Forgotten
from riglm.domain.identifier import parsed_uuid
from riglm.domain.session import Session


class Forgetting:
    """Has sessions of this process begin anew: whoever is at work keeps the connection, and nothing else."""

    def __init__(self, sessions: SessionRegistry, let_go: Sequence[Callable[[Session], object]]) -> None:
        """`let_go` are told of each session, in this order, by those who remember something of it."""
        self._sessions = sessions
        self._let_go = let_go

    def heard(self, forgotten: Iterable[Forgotten]) -> None:
        """These sessions were to be forgotten; those that are not known here are somebody else's, or over."""
        for each in forgotten:
            id_ = parsed_uuid(each.key)
            session = None if id_ is None else self._sessions.known(id_)
            if session is not None and session.forgotten_at < each.at:
                session.forgotten_at = each.at
                for let_go in self._let_go:
                    let_go(session)
