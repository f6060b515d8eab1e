"""The joined list of tools as one client is shown it."""

from riglm.application.exchange import Call
from riglm.application.services import Services, tool_name
from riglm.domain.parameters import Parameters
from riglm.domain.session import Session
from riglm.domain.tool import Catalogue, read_catalogue


class ShownTools:
    """Reads the joined list again only when it changed, and passes it through the filter."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._entries: list[bytes] = []
        self._catalogue = Catalogue()

    def select(self, session: Session, entries: list[bytes]) -> list[bytes]:
        """The entries that the session sees; the exposure is recorded."""
        if entries is not self._entries:
            self._entries = entries
            self._catalogue = read_catalogue(b'{"tools":[%b]}' % b",".join(entries))
        self._services.expose(session, self._catalogue)
        return entries

    def call(self, session: Session, server: str, given: Parameters) -> Call:
        """Note that an invocation starts, under the name that the client used."""
        tool = tool_name(given)
        return self._services.call(session, server, tool, given, tool in self._catalogue.by_name)

    def input_schema(self, tool: str) -> bytes | None:
        """The raw `inputSchema` of a shown tool."""
        schema = self._catalogue.input_schema(tool)
        return bytes(schema) if schema else None
