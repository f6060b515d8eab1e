"""The last list of tools that each upstream gave."""

from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.tool import Catalogue, Tool, read_catalogue

_EMPTY = Catalogue()


class Catalogues:
    """Remembers lists, so that one that did not change is not read again."""

    def __init__(self) -> None:
        self._pages: dict[tuple[str, bytes], Catalogue] = {}
        self._whole: dict[str, Catalogue] = {}

    def read(self, upstream: str, asked: Message, result: bytes) -> Catalogue:
        """The page that `result` holds, an answer of `upstream` to the `tools/list` request `asked`."""
        cursor = bytes(jsonrpc.members(asked.params).get("cursor", b"")) if b'"cursor"' in asked.line else b""
        last = self._pages.get((upstream, cursor))
        if last is not None and last.raw == result:
            return last
        page = read_catalogue(result)
        if not cursor:
            self._forget_pages(upstream)
        self._pages[upstream, cursor] = page
        self._whole[upstream] = self._join(upstream)
        return page

    def of(self, upstream: str) -> Catalogue:
        """All tools that `upstream` has listed so far."""
        return self._whole.get(upstream, _EMPTY)

    def input_schema(self, upstream: str, tool: str) -> Raw | None:
        """The raw `inputSchema` of a listed tool."""
        return self.of(upstream).input_schema(tool)

    def _forget_pages(self, upstream: str) -> None:
        for key in [key for key in self._pages if key[0] == upstream]:
            del self._pages[key]

    def _join(self, upstream: str) -> Catalogue:
        pages = [page for (name, _), page in self._pages.items() if name == upstream]
        if len(pages) == 1:
            return pages[0]
        tools: dict[str, Tool] = {}
        for page in pages:
            tools |= {tool.name: tool for tool in page.tools}
        return Catalogue(tuple(tools.values()))
