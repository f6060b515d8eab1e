"""Lists that were read lately, so that one that did not change is the same catalogue for everybody."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from riglm.application.showing.disguise import has_one_name
from riglm.domain.jsonrpc import Message
from riglm.domain.tool import Catalogue, Tool, read_catalogue

MOST_KEPT: Final = 16
"""So many different lists are remembered."""


class ReadLists:
    """Reads whole lists, and gives the same object again for the same tools.

    What riglm writes keeps its order when an upstream lists the same tools in another order at each request.
    """

    def __init__(self) -> None:
        self._kept: deque[tuple[bool, list[bytes], Catalogue]] = deque(maxlen=MOST_KEPT)

    def read(self, pages: Sequence[Message], *, plainly: bool) -> Catalogue:
        """The tools of all pages; of tools with the same name on several pages the first one counts.

        With `plainly`, what has other names for other readers is left out.
        """
        results = [bytes(page.result) for page in pages]
        for *kept, catalogue in self._kept:
            if kept == [plainly, results]:
                return catalogue
        parts = [read_plainly(result) if plainly else read_catalogue(result) for result in results]
        read = parts[0] if len(parts) == 1 else _joined(parts, b"\n".join(results))
        catalogue = self._steady(read, plainly=plainly)
        self._kept.appendleft((plainly, results, catalogue))
        return catalogue

    def _steady(self, read: Catalogue, *, plainly: bool) -> Catalogue:
        """A list in the order in which its tools were first seen, if its upstream changes the order of what stays."""
        known = [catalogue for kept_plainly, _, catalogue in self._kept if kept_plainly == plainly]
        for catalogue in known:
            if _have_the_same(catalogue, read):
                return catalogue
        akin = (each for each in known if 2 * len(each.name_set & read.name_set) > len(read.name_set))
        last = next(akin, None)
        return read if last is None else _in_order_of(last, read)


def read_plainly(result: bytes) -> Catalogue:
    """The tools in the raw result of a `tools/list`, less what has other names for other readers, or none for riglm."""
    read = read_catalogue(result)
    return Catalogue(tuple(tool for tool in read.tools if has_one_name(tool)), result, missing=read.missing)


def _joined(parts: Sequence[Catalogue], raw: bytes) -> Catalogue:
    tools: dict[str, Tool] = {}
    others = []
    for part in parts:
        for entry, tool in part.entries():
            if tool is None:
                others.append((len(tools), entry))
            else:
                tools.setdefault(tool.name, tool)
    missing = dict.fromkeys(server for part in parts for server in part.missing)
    return Catalogue(tuple(tools.values()), raw, tuple(others), missing=tuple(missing))


def _have_the_same(one: Catalogue, other: Catalogue) -> bool:
    """Return True if two lists have the same entries, in any order, and lack the same servers."""
    if one.missing != other.missing or len(one.tools) != len(other.tools) or one.name_set != other.name_set:
        return False
    first, second = (sorted(bytes(raw) for raw, _ in each.entries()) for each in (one, other))
    return first == second


def _in_order_of(known: Catalogue, read: Catalogue) -> Catalogue:
    """A list as it is if it only adds to another or takes away, else in the order of that one, with new tools last."""
    places = {name: place for place, name in enumerate(dict.fromkeys(known.names))}
    found = [places[name] for name in read.names if name in places]
    if found == sorted(found):
        return read
    tools = sorted(read.tools, key=lambda tool: places.get(tool.name, len(places)))
    return replace(read, tools=tuple(tools))
