"""The tools that an agent has, as riglm reads them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from riglm.application.selecting.given import shortly
from riglm.application.selecting.shapes import UnusableTool, read_tool
from riglm.domain.naming import SEPARATOR
from riglm.domain.tool import Catalogue, Tool

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Offer(Generic[T]):
    """Tools in their order: the agent's own objects by name, and the catalogue that riglm makes of them."""

    objects: Mapping[str, T]
    catalogue: Catalogue

    @property
    def owners(self) -> dict[str, tuple[str, str]]:
        """The server of each tool and its name there; what stands before `__` in a name is the server."""
        return {name: _owner(name) for name in self.objects}

    def name_of(self, tool: object) -> str:
        """The name of a tool that is given by its name, or as one of the objects or its like.

        Raises:
            UnusableTool: it is no tool.
        """
        if isinstance(tool, str):
            return tool
        return next((name for name, known in self.objects.items() if known is tool), "") or read_tool(tool).name


class Reader(Generic[T]):
    """Reads tools, and each object once: agents give the same ones again and again."""

    def __init__(self) -> None:
        self._last: Offer[T] = Offer({}, Catalogue())
        self._read: dict[int, tuple[T, Tool]] = {}

    def __call__(self, tools: Iterable[T]) -> Offer[T]:
        """The offer that these tools make; the same one for the same tools.

        Raises:
            UnusableTool: something is no tool, or two have the same name.
        """
        if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Iterable):
            raise UnusableTool(f"{shortly(tools)} is no list of tools — fix: give a list, [tool] for a single one")
        read: dict[int, tuple[T, Tool]] = {}
        objects: dict[str, T] = {}
        for given in tools:
            tool = self._tool(given)
            if tool.name in objects and objects[tool.name] is not given:
                raise UnusableTool(f"two tools are called {tool.name!r} — fix: give one of them another name")
            objects[tool.name] = given
            read[id(given)] = (given, tool)
        self._read = read
        catalogue = Catalogue(tuple(tool for _, tool in read.values()))
        if catalogue.names != self._last.catalogue.names or catalogue.digest != self._last.catalogue.digest:
            self._last = Offer(objects, catalogue)
        elif any(self._last.objects[name] is not given for name, given in objects.items()):
            self._last = Offer(objects, self._last.catalogue)
        return self._last

    def _tool(self, given: T) -> Tool:
        known = None if isinstance(given, dict) else self._read.get(id(given))  # dictionaries are changed in place
        return known[1] if known is not None and known[0] is given else read_tool(given)


def _owner(name: str) -> tuple[str, str]:
    server, separator, bare = name.partition(SEPARATOR)
    return (server, bare) if separator and server and bare else ("", name)
