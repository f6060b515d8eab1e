"""Lists that were read lately, so that one that did not change is the same catalogue for everybody."""

from collections import deque
from collections.abc import Sequence
from typing import Final

from riglm.domain.jsonrpc import Message
from riglm.domain.tool import Catalogue, Tool, read_catalogue

MOST_KEPT: Final = 16
"""So many different lists are remembered."""


class ReadLists:
    """Reads whole lists, and gives the same object again for the same bytes."""

    def __init__(self) -> None:
        self._kept: deque[tuple[list[bytes], Catalogue]] = deque(maxlen=MOST_KEPT)

    def read(self, pages: Sequence[Message]) -> Catalogue:
        """The tools of all pages; of tools with the same name the first one counts."""
        results = [bytes(page.result) for page in pages]
        for kept, catalogue in self._kept:
            if kept == results:
                return catalogue
        catalogue = read_catalogue(results[0]) if len(results) == 1 else _joined(results)
        self._kept.appendleft((results, catalogue))
        return catalogue


def _joined(results: Sequence[bytes]) -> Catalogue:
    tools: dict[str, Tool] = {}
    for result in results:
        for tool in read_catalogue(result).tools:
            tools.setdefault(tool.name, tool)
    return Catalogue(tuple(tools.values()), b"\n".join(results))
