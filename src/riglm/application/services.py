"""What every conversation works with."""

from dataclasses import dataclass

from riglm.application.catalogues import Catalogues
from riglm.application.exchange import Call, Exchange
from riglm.application.filtering import FilteringService
from riglm.application.sessions import SessionRegistry
from riglm.application.tracking import TrackingService
from riglm.domain import jsonrpc
from riglm.domain.invocation import Found
from riglm.domain.jsonrpc import Message
from riglm.domain.parameters import Parameters
from riglm.domain.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services of one riglm process."""

    tracking: TrackingService
    sessions: SessionRegistry
    catalogues: Catalogues
    filtering: FilteringService
    grace: float = 0.8
    """Seconds that a client waits for the slowest of several servers before it gets what the others have."""

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

    def listed(self, session: Session, upstream: str, exchange: Exchange, message: Message) -> Message:
        """An upstream's answer to `tools/list`, as the client is to see it; the whole of it when filtering fails."""
        if not message.result:
            return message
        catalogue = self.catalogues.read(upstream, exchange.message, bytes(message.result))
        selection = self.filtering.select(session, catalogue)
        self.tracking.exposed(
            session, selection.shown, selection.hidden, predictor=selection.predictor, reason=selection.reason
        )
        return message


def tool_name(given: Parameters) -> str | None:
    """The tool that a `tools/call` names."""
    return jsonrpc.text(given.name)
