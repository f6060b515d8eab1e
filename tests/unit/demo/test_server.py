"""The bundled servers: their definitions, what the tools do, and both protocol eras."""

import json
from typing import Any

import jsonschema
import pytest

from riglm.demo.agent import plan_sessions
from riglm.demo.server import DEFINITIONS, Server

SERVERS = json.loads(DEFINITIONS.read_text("utf-8"))


def ask(server: Server, method: str, params: dict[str, Any]) -> Any:
    answer = server.answer({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    assert answer is not None
    return answer.get("result") or answer["error"]


def call(server: Server, tool: str, arguments: dict[str, Any]) -> Any:
    result = ask(server, "tools/call", {"name": tool, "arguments": arguments})
    text = result["content"][0]["text"]
    return f"error: {text}" if result.get("isError") else text


def sample(schema: dict[str, Any]) -> Any:
    """A value that a schema allows."""
    if "enum" in schema:
        return schema["enum"][0]
    if schema["type"] == "object":
        return {name: sample(its) for name, its in schema["properties"].items()}
    if schema["type"] == "array":
        return [sample(schema["items"])]
    return {"string": "2026-12-01", "integer": 101, "number": 2.5, "boolean": True}[schema["type"]]


@pytest.mark.parametrize("name", SERVERS)
def test_every_tool_is_implemented_for_arguments_that_its_schema_allows(name: str) -> None:
    for tool in ask(Server(name), "tools/list", {})["tools"]:
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
        answer = call(Server(name), tool["name"], sample(tool["inputSchema"]))
        expected_errors = ("does not exist", "is none of", "does not contain")
        assert not answer.startswith("error") or any(words in answer for words in expected_errors), answer


def test_the_calls_of_the_sessions_fit_the_schemas_and_succeed() -> None:
    schemas = {f"{name}__{tool['name']}": tool["inputSchema"] for name in SERVERS for tool in SERVERS[name]["tools"]}
    for session in plan_sessions():
        started = {name: Server(name) for name in SERVERS}
        for step in session.steps:
            jsonschema.validate(step.arguments, schemas[step.tool])
            name, _, tool = step.tool.partition("__")
            assert not call(started[name], tool, step.arguments).startswith("error"), step
