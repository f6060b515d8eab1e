"""The last list of tools that each upstream gave."""

from typing import Final

from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.tool import Catalogue, Tool, read_catalogue

MOST_PAGES: Final = 1000
"""Pages of one upstream's list beyond this many are passed on and not remembered."""

_EMPTY: Final = Catalogue()


def cursor_of(asked: Message) -> bytes:
    """The raw cursor of a `tools/list` request, empty when it asks for the first page."""
    return bytes(jsonrpc.members(asked.params).get("cursor", b"")) if b'"cursor"' in asked.line else b""


class Catalogues:
    """Remembers lists, so that one that did not change is not read again."""

    def __init__(self) -> None:
        self._pages: dict[str, dict[bytes, Catalogue]] = {}
        self._whole: dict[str, Catalogue] = {}

    def read(self, upstream: str, asked: Message, result: bytes) -> Catalogue:
        """The page that `result` holds, an answer of `upstream` to the `tools/list` request `asked`."""
        cursor = cursor_of(asked)
        pages = self._pages.setdefault(upstream, {})
        last = pages.get(cursor)
        if last is not None and last.raw == result:
            return last
        page = read_catalogue(result)
        if not cursor:
            pages.clear()
        if len(pages) < MOST_PAGES or cursor in pages:
            pages[cursor] = page
            self._whole.pop(upstream, None)
        return page

    def of(self, upstream: str) -> Catalogue:
        """All tools that `upstream` has listed so far."""
        whole = self._whole.get(upstream)
        if whole is None:
            whole = self._whole[upstream] = _joined(list(self._pages.get(upstream, {}).values()))
        return whole

    def lacks(self, upstream: str, tool: str) -> bool:
        """Whether `upstream` listed no such tool, and no part of its list is unknown."""
        return tool not in self.of(upstream).name_set and self._is_complete(upstream)

    def counts(self) -> dict[str, int]:
        """How many tools each upstream has listed, of those that listed any or none."""
        return {upstream: len(self.of(upstream).names) for upstream in self._pages}

    def input_schema(self, upstream: str, tool: str) -> Raw | None:
        """The raw `inputSchema` of a listed tool."""
        return self.of(upstream).input_schema(tool)

    def _is_complete(self, upstream: str) -> bool:
        pages = self._pages.get(upstream, {})
        page = pages.get(b"")
        for _ in pages:  # a cursor may lead back to where it came from
            if page is None or not page.next_cursor:
                break
            page = pages.get(page.next_cursor)
        return page is not None and not page.next_cursor


class SeenTools:
    """The names that one client was shown, page by page: what others were shown does not count."""

    __slots__ = ("_first", "_further")

    def __init__(self) -> None:
        self._first: frozenset[str] | None = None
        self._further: dict[bytes, frozenset[str]] | None = None
        """The pages after the first one, by cursor; None when there are none, as with most servers."""

    def note(self, asked: Message, page: Catalogue) -> None:
        """The client got a page as the answer to `asked`; the first page begins a new list."""
        cursor = cursor_of(asked)
        if not cursor:
            self._first, self._further = page.name_set, None
            return
        further = self._further = self._further or {}
        if len(further) + (self._first is not None) < MOST_PAGES:
            further[cursor] = page.name_set

    def __contains__(self, tool: str | None) -> bool:
        if self._first is not None and tool in self._first:
            return True
        return self._further is not None and any(tool in names for names in self._further.values())


def _joined(pages: list[Catalogue]) -> Catalogue:
    if len(pages) <= 1:
        return pages[0] if pages else _EMPTY
    tools: dict[str, Tool] = {}
    for page in pages:
        tools |= {name: page.by_name[name] for name in page.names}
    return Catalogue(tuple(tools.values()))
