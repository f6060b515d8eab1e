"""Reads what a tool says of itself, whatever library it belongs to; none of them is imported for it."""

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from riglm.application.selecting.given import shortly
from riglm.domain import jsonrpc
from riglm.domain.errors import UnusableInput
from riglm.domain.jsonrpc import Raw
from riglm.domain.tool import Tool

_SCHEMA_KEYS: Final = ("inputSchema", "input_schema", "parameters", "parametersJsonSchema", "parameters_json_schema")
"""Where dictionaries have it: MCP, Anthropic, OpenAI, Gemini."""

_SCHEMA_ATTRIBUTES: Final = (
    "tool_call_schema",  # LangChain
    "params_json_schema",  # OpenAI Agents SDK
    "parameters_json_schema",  # pydantic-ai's definitions
    "input_schema",  # the MCP SDK
    "inputSchema",  # the MCP SDK before 2
    "parameters",  # FastMCP
)
_KNOWN: Final = (
    "a definition as MCP, OpenAI or Anthropic write it, a tool of the MCP SDK, pydantic-ai, LangChain or the OpenAI "
    "Agents SDK, or a function"
)


class UnusableTool(UnusableInput):
    """Something that was given as a tool is none that riglm can read, or has a name that another one has."""


def read_tool(given: object) -> Tool:
    """The name of a tool, and what it says of itself as an MCP definition.

    Raises:
        UnusableTool: it has no name.
    """
    name, description, schema = _of_mapping(given) if isinstance(given, Mapping) else _of_object(given)
    if not isinstance(name, str) or not name:
        raise UnusableTool(f"{shortly(given)} is no tool that riglm can read: it has no name — fix: give {_KNOWN}")
    said: dict[str, Any] = {"name": name}
    if isinstance(description, str) and description:
        said["description"] = description
    said["inputSchema"] = schema
    return Tool(name, Raw(_encoded(said)))


def _of_mapping(given: Mapping[Any, Any]) -> tuple[Any, Any, Any]:
    inner = given.get("function")
    fields = inner if isinstance(inner, Mapping) else given
    found = (_schema(fields.get(key)) for key in _SCHEMA_KEYS)
    return fields.get("name"), fields.get("description"), next((each for each in found if each is not None), {})


def _of_object(given: object) -> tuple[Any, Any, Any]:
    definition = getattr(given, "tool_def", None)  # pydantic-ai's tools
    if definition is not None:
        return _of_object(definition)
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
    """A JSON Schema, given as it is or as a model of pydantic's; None when it is neither."""
    if isinstance(found, Mapping):
        return found
    write = getattr(found, "model_json_schema", None)
    if write is None:
        return None
    try:
        schema = write()
    except Exception:  # noqa: BLE001  # a model without a schema describes no parameters, and is a tool all the same
        return None
    return schema if isinstance(schema, Mapping) else None


def _encoded(said: dict[str, Any]) -> bytes:
    try:
        return _json(said)
    except Exception:  # noqa: BLE001  # whatever a schema holds that is no JSON
        return _json({key: value for key, value in said.items() if key != "inputSchema"})


def _json(said: dict[str, Any]) -> bytes:
    """The JSON of it; halves of surrogate pairs are escaped, as they come from servers that write them."""
    try:
        return jsonrpc.encode(said)
    except UnicodeEncodeError:
        return json.dumps(said, allow_nan=False).encode()
