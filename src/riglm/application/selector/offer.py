"""The tools that an agent has, as riglm reads them."""

import inspect
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from riglm.domain import jsonrpc
from riglm.domain.errors import UnusableInputError
from riglm.domain.jsonrpc import Raw
from riglm.domain.naming import SEPARATOR
from riglm.domain.tool import Tool, ToolCatalog


def text(value: object, place: str) -> str:
    """The text that was given at `place`, such as `select(context=...)`.

    Raises:
        UnusableInputError: it is none.
    """
    if not isinstance(value, str):
        raise UnusableInputError(f"{place}: {shortly(value)} is no text — fix: give a str")
    return value


def amount(value: object, place: str) -> float:
    """The number that was given at `place`, 0 where it is negative.

    Raises:
        UnusableInputError: it is none, or not finite.
    """
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise UnusableInputError(f"{place}: {shortly(value)} is no number that can be counted — fix: give a finite one")
    return max(0.0, float(value))


def count(value: object, place: str) -> int:
    """The whole number above 0 that was given at `place`.

    Raises:
        UnusableInputError: it is none.
    """
    if not isinstance(value, int) or value < 1:
        raise UnusableInputError(f"{place}: {shortly(value)} is no whole number above 0 — fix: give one")
    return value


def shortly(value: object) -> str:
    """A value as a message shows it."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


_SCHEMA_KEYS: Final = ("inputSchema", "input_schema", "parameters", "parametersJsonSchema", "parameters_json_schema")
"""Where dictionaries have it: MCP, Anthropic, OpenAI, Gemini."""

_SCHEMA_ATTRIBUTES: Final = (
    "tool_call_schema",  # LangChain
    "params_json_schema",  # OpenAI Agents SDK
    "parameters_json_schema",  # pydantic-ai's definitions
    "input_schema",  # the MCP SDK
    "inputSchema",  # the MCP SDK before 2
    "parameters",  # FastMCP, and agent-framework as a method
)
_KNOWN: Final = (
    "a definition as MCP, OpenAI or Anthropic write it, a tool of the MCP SDK, pydantic-ai, LangChain or the OpenAI "
    "Agents SDK, or a function"
)


_TOOL_TYPES: Final = frozenset({"function", "custom", "namespace"})
_JSON_TYPES: Final = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_DATED_TYPE: Final = re.compile(r".+_20\d{6}")
"""Type of a tool that Anthropic defines, such as `web_search_20250305`; it has a name and no schema."""

_WRAPPERS: Final = ("function", "custom", "toolSpec")
"""Where OpenAI's chat API and Amazon Bedrock have the definition."""

_DEFINITION_KEYS: Final = frozenset({*_WRAPPERS, *_SCHEMA_KEYS})
_DECLARATIONS: Final = ("functionDeclarations", "function_declarations")
"""Where a tool of Gemini's has several functions, which are passed through together."""


def is_built_in(given: object) -> bool:
    """Return True for a tool that the model's provider defines, such as `{"type": "web_search"}`.

    It has no definition to select by: OpenAI's and Anthropic's have a type, Gemini's and Bedrock's one key each, and
    those of the OpenAI Agents SDK are classes without a schema.
    """
    if isinstance(given, Mapping):
        return _is_built_in_mapping(given)
    if type(given).__module__.partition(".")[0] == "agents":
        return all(getattr(given, each, None) is None for each in _SCHEMA_ATTRIBUTES)
    may_be = not getattr(given, "name", None) or isinstance(getattr(given, "type", None), str)
    dump = getattr(given, "model_dump", None) if may_be and not isinstance(given, type) else None
    dumped = dump(exclude_none=True) if callable(dump) else None  # Gemini's tools
    return isinstance(dumped, Mapping) and _is_built_in_mapping(dumped)


def _is_built_in_mapping(given: Mapping[Any, Any]) -> bool:
    members = {key: value for key, value in given.items() if value is not None and (key, value) != ("name", "")}
    kind = members.get("type")
    has_definition = not _DEFINITION_KEYS.isdisjoint(members)
    if "name" in members:
        if not isinstance(kind, str) or not isinstance(members["name"], str) or has_definition:
            return isinstance(kind, str) and _DATED_TYPE.fullmatch(kind) is not None
    elif not isinstance(kind, str):
        if has_definition:
            return False
        return isinstance(members.get("id"), str) or _has_settings(members)
    return bool(kind.strip()) and kind not in _TOOL_TYPES | _JSON_TYPES


def _has_settings(members: Mapping[Any, Any]) -> bool:
    """True if all members are such as Gemini and Bedrock write them."""
    return bool(members) and all(
        (isinstance(value, list) and bool(value))
        if key in _DECLARATIONS
        else isinstance(value, Mapping) or hasattr(value, "model_dump")
        for key, value in members.items()
    )


class UnusableToolError(UnusableInputError):
    """Raised when an object given as a tool cannot be read, or has the name of a different tool."""


def read_tool(given: object) -> Tool:
    """Return the name of a tool and its MCP definition.

    Raises:
        UnusableToolError: it has no name.
    """
    name, description, schema = _of_mapping(given) if isinstance(given, Mapping) else _of_object(given)
    if not isinstance(name, str) or not name:
        raise UnusableToolError(f"{shortly(given)} is no tool that riglm can read: it has no name — fix: give {_KNOWN}")
    said: dict[str, Any] = {"name": name}
    if isinstance(description, str) and description:
        said["description"] = description
    said["inputSchema"] = schema
    return Tool(name, Raw(_encoded(said)))


def _of_mapping(given: Mapping[Any, Any]) -> tuple[Any, Any, Any]:
    inner = (given.get(key) for key in _WRAPPERS)
    fields = next((each for each in inner if isinstance(each, Mapping) and "name" in each), given)
    found = (_schema(fields.get(key)) for key in _SCHEMA_KEYS)
    return fields.get("name"), fields.get("description"), next((each for each in found if each is not None), {})


def _of_object(given: object) -> tuple[Any, Any, Any]:
    definition = getattr(given, "tool_def", None)  # pydantic-ai's tools
    if definition is not None:
        return _of_object(definition)
    specification = getattr(given, "tool_spec", None)  # Strands Agents
    if isinstance(specification, Mapping):
        return _of_mapping(specification)
    name = getattr(given, "name", None)
    if name is None and callable(given) and not isinstance(given, type):
        return _of_function(given)
    found = (_schema(getattr(given, attribute, None)) for attribute in _SCHEMA_ATTRIBUTES)
    schema = next((each for each in found if each is not None), {})
    return name, getattr(given, "description", None), schema


def _of_function(given: Callable[..., object]) -> tuple[Any, Any, Any]:
    try:
        names = list(inspect.signature(given).parameters)
    except (TypeError, ValueError):  # written in C, and silent about it
        names = []
    schema = {"type": "object", "properties": {name: {} for name in names}}
    return getattr(given, "__name__", None), inspect.getdoc(given), schema


def _schema(found: object) -> Mapping[Any, Any] | None:
    """A JSON Schema, given as it is, as a model of pydantic's or by a method; None when it is none of these."""
    if isinstance(found, Mapping):
        inner = found.get("json")  # Amazon Bedrock, Strands Agents
        return inner if isinstance(inner, Mapping) else found
    write = getattr(found, "model_json_schema", found)
    if not callable(write):
        return None
    try:
        schema = write()
    except Exception:  # noqa: BLE001  # a model without a schema describes no parameters, and is a tool all the same
        return None
    return schema if isinstance(schema, Mapping) else None


def _encoded(said: dict[str, Any]) -> bytes:
    try:
        return _json(said)
    except Exception:  # noqa: BLE001  # a schema may contain anything that is not JSON
        return _json({key: value for key, value in said.items() if key != "inputSchema"})


def _json(said: dict[str, Any]) -> bytes:
    """The JSON of it; halves of surrogate pairs are escaped, as they come from servers that write them."""
    try:
        return jsonrpc.encode(said)
    except UnicodeEncodeError:
        return json.dumps(said, allow_nan=False).encode()


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OfferedTools(Generic[T]):
    """Tools in their order: the agent's own objects by name, and the catalogue that riglm makes of them.

    `given` are all objects, each with its name; that of a provider's built-in tool is empty.
    """

    objects: Mapping[str, T]
    catalog: ToolCatalog
    given: tuple[tuple[str, T], ...] = ()

    @property
    def owners(self) -> dict[str, tuple[str, str]]:
        """Return the server of each tool and its name there; the server is the part of a name before `__`."""
        return {name: _owner(name) for name in self.objects}

    def chosen(self, names: Collection[str]) -> tuple[T, ...]:
        """Return the tools of these names with all built-in ones, in the order in which they were given."""
        return tuple(each for name, each in self.given if not name or name in names)

    def name_of(self, tool: object) -> str:
        """The name of a tool that is given by its name, or as one of the objects or its like.

        Raises:
            UnusableToolError: it is no tool.
        """
        if isinstance(tool, str):
            return tool
        return next((name for name, known in self.objects.items() if known is tool), "") or read_tool(tool).name


class ToolReader(Generic[T]):
    """Reads tools, and each object once: agents give the same ones again and again."""

    def __init__(self) -> None:
        self._last: OfferedTools[T] = OfferedTools({}, ToolCatalog())
        self._read: dict[int, tuple[T, Tool]] = {}

    def __call__(self, tools: Iterable[T]) -> OfferedTools[T]:
        """The offer that these tools make; the same one for the same tools.

        Raises:
            UnusableToolError: something is no tool, or two have the same name.
        """
        if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Iterable):
            raise UnusableToolError(f"{shortly(tools)} is no list of tools — fix: give a list, [tool] for a single one")
        read: dict[int, tuple[T, Tool]] = {}
        objects: dict[str, T] = {}
        all_given: list[tuple[str, T]] = []
        for given in tools:
            if is_built_in(given):
                all_given.append(("", given))
                continue
            tool = self._tool(given)
            if tool.name in objects and objects[tool.name] is not given:
                raise UnusableToolError(f"two tools are called {tool.name!r} — fix: give one of them another name")
            if tool.name not in objects:
                all_given.append((tool.name, given))
            objects[tool.name] = given
            read[id(given)] = (given, tool)
        self._read = read
        catalog = ToolCatalog(tuple(tool for _, tool in read.values()))
        if catalog.names != self._last.catalog.names or catalog.digest != self._last.catalog.digest:
            self._last = OfferedTools(objects, catalog, tuple(all_given))
        elif [id(given) for _, given in self._last.given] != [id(given) for _, given in all_given]:
            self._last = OfferedTools(objects, self._last.catalog, tuple(all_given))
        return self._last

    def _tool(self, given: T) -> Tool:
        known = None if isinstance(given, dict) else self._read.get(id(given))  # dictionaries are changed in place
        return known[1] if known is not None and known[0] is given else read_tool(given)


def _owner(name: str) -> tuple[str, str]:
    server, separator, bare = name.partition(SEPARATOR)
    return (server, bare) if separator and server and bare else ("", name)
