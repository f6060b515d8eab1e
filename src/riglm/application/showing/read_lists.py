"""Lists that were read lately, so that one that did not change is the same catalogue for everybody."""

from collections import deque
from collections.abc import Sequence
from typing import Final

from riglm.application.showing.disguise import has_one_name
from riglm.domain.jsonrpc import Message
from riglm.domain.tool import Catalogue, Tool, read_catalogue

MOST_KEPT: Final = 16
"""So many different lists are remembered."""


class ReadLists:
    """Reads whole lists, and gives the same object again for the same bytes."""

    def __init__(self) -> None:
        self._kept: deque[tuple[bool, list[bytes], Catalogue]] = deque(maxlen=MOST_KEPT)

    def read(self, pages: Sequence[Message], *, plainly: bool) -> Catalogue:
        """The tools of all pages; of tools with the same name the first one counts.

        With `plainly`, what has other names for other readers is left out.
        """
        results = [bytes(page.result) for page in pages]
        for *kept, catalogue in self._kept:
            if kept == [plainly, results]:
                return catalogue
        parts = [read_plainly(result) if plainly else read_catalogue(result) for result in results]
        catalogue = parts[0] if len(parts) == 1 else _joined(parts, b"\n".join(results))
        self._kept.appendleft((plainly, results, catalogue))
        return catalogue


def read_plainly(result: bytes) -> Catalogue:
    """The tools in the raw result of a `tools/list`, less those that have other names for other readers."""
    catalogue = read_catalogue(result)
    plain = tuple(tool for tool in catalogue.tools if has_one_name(tool))
    return catalogue if len(plain) == len(catalogue.tools) else Catalogue(plain, result)


def _joined(parts: Sequence[Catalogue], raw: bytes) -> Catalogue:
    tools: dict[str, Tool] = {}
    for part in parts:
        for tool in part.tools:
            tools.setdefault(tool.name, tool)
    return Catalogue(tuple(tools.values()), raw)
