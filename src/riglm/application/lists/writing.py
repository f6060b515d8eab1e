"""The entries of a list as raw JSON: the upstream's own bytes, with riglm's tools and marks where they belong."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from riglm.application.lists.meta_tool_definitions import SEARCH
from riglm.domain import jsonrpc
from riglm.domain.tool import Catalogue

ALWAYS_LOAD: Final = ("_meta", "anthropic/alwaysLoad")
"""Where a definition says that its schema is worth loading at once."""

_MOST_KEPT: Final = 16


class ListWriter:
    """Writes lists; one that many clients are shown is written once for all of them."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[object, ...], tuple[Catalogue, bytes]] = OrderedDict()

    def whole(self, catalogue: Catalogue) -> bytes:
        """All entries."""
        return self._written(catalogue, ("whole",), lambda: (bytes(tool.raw) for tool in catalogue.tools))

    def some(
        self,
        catalogue: Catalogue,
        names: frozenset[str],
        meta_tools: Mapping[str, bytes],
        *,
        search_first: bool = False,
    ) -> bytes:
        """Return the entries of some tools in the catalog's order, and the definitions of the meta-tools.

        With `search_first` the search comes before the tools, otherwise all meta-tools come after them.
        """
        first = meta_tools.get(SEARCH) if search_first else None

        def entries() -> Iterable[bytes]:
            if first is not None:
                yield first
            yield from (bytes(tool.raw) for tool in catalogue.tools if tool.name in names)
            yield from (raw for raw in meta_tools.values() if raw is not first)

        return self._written(catalogue, ("some", names, *meta_tools.values(), search_first), entries)

    def marked(self, catalogue: Catalogue, names: frozenset[str], warm: frozenset[str]) -> bytes:
        """The entries of some tools and those without a name; of each warm name the first one has a mark."""

        def entries() -> Iterable[bytes]:
            for raw, tool in catalogue.entries():
                if tool is None:
                    yield bytes(raw)
                elif tool.name in names:
                    marks = tool.name in warm and tool is catalogue.by_name[tool.name]
                    yield jsonrpc.with_member(raw, ALWAYS_LOAD, b"true") if marks else bytes(raw)

        return self._written(catalogue, ("marked", names, warm), entries)

    def _written(self, catalogue: Catalogue, what: tuple[object, ...], entries: Callable[[], Iterable[bytes]]) -> bytes:
        key = (id(catalogue), *what)
        kept = self._kept.get(key)
        if kept is None or kept[0] is not catalogue:
            kept = self._kept[key] = (catalogue, b"[%b]" % b",".join(entries()))
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return kept[1]
