"""The joined list of tools as one client is shown it, and the calls of its tools."""

from functools import partial

from riglm.application.aggregating.listings import JoinedList
from riglm.application.aggregating.router import Route, Router
from riglm.application.forwarding.exchange import Call
from riglm.application.forwarding.services import Services, tool_name
from riglm.domain import parameters
from riglm.domain.jsonrpc import Message
from riglm.domain.session import Session
from riglm.domain.tool import Catalogue


class ShownTools:
    """Remembers the joined list that was shown."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._catalogue = Catalogue()

    def select(self, session: Session, joined: JoinedList) -> bytes:
        """The entries that the session sees, as a raw JSON array; the exposure is recorded."""
        self._catalogue = joined.catalogue
        self._services.owners.note(joined.owners)
        self._services.expose(session, joined.catalogue)
        return joined.raw

    def call(
        self, session: Session, router: Router, message: Message, route: Route | None
    ) -> tuple[Call | None, Message | None]:
        """Note that an invocation starts, and say whether it may go its way, now that it is known which tool is meant.

        The invocation has the name that the client used; it is None when the call names no tool. The error is None when
        there is a way and the tool may be used.
        """
        given = parameters.read(message)
        tool = tool_name(given)
        refused = router.refusal(message, route, partial(self._services.permits, session))
        if not tool:
            return None, refused
        known, is_unlisted, server = tool in self._catalogue.name_set, None, ""
        if route is not None and refused is None:
            server, is_unlisted = route.server, None if known else partial(router.is_unlisted, route)
        return self._services.call(session, server, tool, given, known, is_unlisted), refused

    def input_schema(self, tool: str) -> bytes | None:
        """The raw `inputSchema` of a shown tool."""
        schema = self._catalogue.input_schema(tool)
        return bytes(schema) if schema else None
