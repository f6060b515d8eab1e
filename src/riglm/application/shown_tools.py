"""The joined list of tools as one client is shown it."""

from riglm.application.exchange import Call
from riglm.application.listings import JoinedList
from riglm.application.services import Services, tool_name
from riglm.domain.parameters import Parameters
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

    def call(self, session: Session, server: str, given: Parameters) -> Call | None:
        """Note that an invocation starts, under the name that the client used; None when it names no tool."""
        tool = tool_name(given)
        if not tool:
            return None
        return self._services.call(session, server, tool, given, tool in self._catalogue.name_set)

    def input_schema(self, tool: str) -> bytes | None:
        """The raw `inputSchema` of a shown tool."""
        schema = self._catalogue.input_schema(tool)
        return bytes(schema) if schema else None
