"""What every conversation works with."""

import logging
from dataclasses import dataclass, field
from typing import Final

from riglm.application.catalogues import Catalogues, SeenTools
from riglm.application.exchange import Call, Exchange
from riglm.application.failing_open import FailingOpen
from riglm.application.filtering import FilteringService
from riglm.application.sessions import SessionRegistry
from riglm.application.tracking import TrackingService
from riglm.domain import jsonrpc
from riglm.domain.invocation import Found
from riglm.domain.jsonrpc import Message
from riglm.domain.parameters import Parameters
from riglm.domain.session import Session
from riglm.domain.tool import Catalogue

_log: Final = logging.getLogger("riglm.proxy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services of one riglm process."""

    tracking: TrackingService
    sessions: SessionRegistry
    catalogues: Catalogues
    filtering: FilteringService
    grace: float = 0.8
    """Seconds that a client waits for the slowest of several servers before it gets what the others have."""
    guarded: FailingOpen = field(default_factory=lambda: FailingOpen(_log, "filtering failed; all is shown, and"))
    """Around whatever riglm does with a list."""

    def call(self, session: Session, upstream: str, tool: str | None, given: Parameters, known: bool) -> Call:
        """Note that an invocation starts; `known` says whether the client was shown the tool."""
        return Call(
            self.tracking,
            session,
            tool=tool or "",
            upstream=upstream,
            arguments=bytes(given.arguments) if given.arguments else None,
            found=Found.LISTED if known else Found.NAMED,
        )

    def listed(
        self, session: Session, upstream: str, exchange: Exchange, message: Message, seen: SeenTools | None = None
    ) -> Message:
        """An upstream's answer to `tools/list`, as the client is to see it; the whole of it when filtering fails.

        What it shows is noted in `seen`.
        """
        if message.result:
            with self.guarded:
                page = self.catalogues.read(upstream, exchange.message, bytes(message.result))
                if seen is not None:
                    seen.note(exchange.message, page)
                self.expose(session, page)
        return message

    def expose(self, session: Session, catalogue: Catalogue) -> None:
        """Note what of a catalogue a session is shown; a filter that fails hides nothing."""
        with self.guarded:
            chosen = self.filtering.select(session, catalogue)
            self.tracking.exposed(
                session, chosen.shown, chosen.hidden, predictor=chosen.predictor, reason=chosen.reason
            )


def tool_name(given: Parameters) -> str | None:
    """The tool that a `tools/call` names."""
    return jsonrpc.text(given.name)
