"""The bundled servers: their definitions, what the tools do, and both protocol eras."""

import json
from typing import Any

import jsonschema
import pytest

from riglm.demo.agent import plan_sessions
from riglm.demo.server import DEFINITIONS, Server

SERVERS = json.loads(DEFINITIONS.read_text("utf-8"))
MODERN = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}


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


@pytest.mark.parametrize(
    ("name", "calls", "expected"),
    [
        ("filesystem", [("list_directory", {"path": "/project"})], "[DIR] docs"),
        ("filesystem", [("find", {})], "error"),
        (
            "filesystem",
            [
                ("write_file", {"path": "/project/a.md", "content": "one\ntwo\n"}),
                ("edit_file", {"path": "/project/a.md", "edits": [{"oldText": "two", "newText": "three"}]}),
                ("move_file", {"source": "/project/a.md", "destination": "/project/b.md"}),
                ("read_text_file", {"path": "/project/b.md", "tail": 1}),
            ],
            "three",
        ),
        ("filesystem", [("search_files", {"path": "/project", "pattern": "f*.md"})], "/project/docs/faq.md"),
        (
            "memory",
            [
                ("create_entities", {"entities": [{"name": "Pier 3", "entityType": "place", "observations": []}]}),
                ("add_observations", {"observations": [{"entityName": "Pier 3", "contents": ["damaged"]}]}),
                ("search_nodes", {"query": "pier damaged"}),
            ],
            "Pier 3",
        ),
        (
            "tracker",
            [("close_issue", {"number": 999, "reason": "completed"})],
            "error: close_issue: number 999 does not",
        ),
        ("tracker", [("create_issue", {"title": "Lamp is out"}), ("get_issue", {"number": 109})], "Lamp is out"),
        ("calendar", [("find_free_time", {"date": "2026-12-03", "minutes": 480})], "[]"),
        ("mail", [("label_message", {"id": "m1", "label": "offer"}), ("read_message", {"id": "m1"})], '["offer"]'),
        ("contacts", [("delete_contact", {"id": "c1"}), ("search_contacts", {"query": "ada"})], "[]"),
        ("office", [("convert_unit", {"value": 12, "unit": "mi", "to": "km"})], "19.312128"),
        ("office", [("describe_numbers", {"numbers": [4, 1, 3, 2]})], '"median": 2.5'),
        ("office", [("days_between", {"start": "2026-02-28", "end": "2026-03-01"})], "1"),
    ],
)
def test_tools_do_what_they_say(name: str, calls: list[tuple[str, dict[str, Any]]], expected: str) -> None:
    server = Server(name)
    answers = [call(server, tool, arguments) for tool, arguments in calls]
    assert expected in answers[-1]


def test_both_eras_are_answered_in_their_form() -> None:
    server = Server("office")
    assert ask(server, "initialize", {"protocolVersion": "2025-06-18"})["protocolVersion"] == "2025-06-18"
    assert ask(server, "initialize", {"protocolVersion": "1999-01-01"})["protocolVersion"] == "2025-11-25"
    assert "resultType" not in ask(server, "tools/list", {})
    assert ask(server, "server/discover", MODERN)["supportedVersions"] == ["2026-07-28"]
    assert ask(server, "tools/list", MODERN)["cacheScope"] == "public"
    assert ask(server, "tools/call", {**MODERN, "name": "list_tasks"})["resultType"] == "complete"
    unknown = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}}
    assert ask(server, "tools/list", unknown)["code"] == -32022
    assert ask(server, "resources/list", {})["code"] == -32601
    assert server.answer({"jsonrpc": "2.0", "method": "notifications/initialized"}) is None
