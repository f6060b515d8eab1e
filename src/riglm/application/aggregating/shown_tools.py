"""The joined list of tools as one client is shown it, and the calls of its tools."""

from collections.abc import Sequence
from functools import partial

from riglm.application.aggregating.listings import JoinedList, Listings
from riglm.application.aggregating.router import Route, Router
from riglm.application.forwarding.exchange import Call
from riglm.application.forwarding.services import Services, tool_name
from riglm.domain import jsonrpc, parameters, protocol
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.session import Session
from riglm.domain.tool import Catalogue


class ShownTools:
    """Remembers the joined list that was shown."""

    def __init__(self, services: Services, listings: Listings) -> None:
        self._services = services
        self._listings = listings
        self._catalogue = Catalogue()

    def show(self, session: Session, joined: JoinedList, missing: Sequence[str]) -> dict[str, Raw]:
        """Record the list of a session, and return what its result reports of the missing servers.

        An incomplete list is logged once for each server, and is no exposure.
        """
        self._catalogue = joined.catalogue
        self._services.owners.note(joined.owners)
        self._listings.report_missing(missing)
        if missing:
            return {"_meta": Raw(jsonrpc.encode({protocol.META_MISSING: missing}))}
        self._services.expose(session, joined.catalogue)
        return {}

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
