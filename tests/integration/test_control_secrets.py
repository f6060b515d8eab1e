"""What must never be seen at the control API: secrets planted wherever there are any, looked for in every answer."""

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from riglm.adapters.control.dashboard import ASSETS
from tests.integration.controlled import PATIENCE, Answer, Controlled, controlled
from tests.integration.past import TOOLS, definitions, listing_server
from tests.interaction.clients import http

pytestmark = pytest.mark.timeout(120)

NAMES = (
    *("env", "other-env", "header", "cookie", "bearer", "url-password", "url-query"),
    *("option", "assignment", "argument-url", "client-token", "write-token", "read-token", "privacy-key"),
    *("argument", "nested-argument", "context", "search", "store-password", "state-password"),
)
CANARIES = {name: f"canary-{name}-{number:02}-8d1f0b7e5a4c9623".replace("-", "") for number, name in enumerate(NAMES)}


def configuration(folder: Path, **more: Any) -> str:
    """A riglm with secrets in all that it is told of servers; only one of them can be reached."""
    (folder / "tools.json").write_text(definitions())
    command, *arguments = listing_server(folder / "tools.json")
    secret = CANARIES
    spare = ["--token", secret["option"], f"--api-key={secret['assignment']}"]
    spare.append(f"postgres://u:{secret['argument-url']}@db.example/x")
    here = {"command": command, "args": arguments + spare}
    here["env"] = {"API_KEY": secret["env"], "HARMLESS_NAME": secret["other-env"]}
    away = {
        "url": f"http://someone:{secret['url-password']}@127.0.0.1:9/mcp?key={secret['url-query']}",
        "headers": {"X-Anything": secret["header"], "Cookie": secret["cookie"]},
    }
    far = {"url": "http://127.0.0.1:9/mcp", "auth": {"type": "bearer", "token": secret["bearer"]}}
    sections: dict[str, Any] = {
        "mcpServers": {"here": here, "away": away, "far": far},
        "downstream": {"token": secret["client-token"]},
        "control": {"token": secret["write-token"], "read_token": secret["read-token"]},
        "privacy": {"key": secret["privacy-key"]},
        "logging": {"level": "debug"},
        **more,
    }
    return json.dumps(sections)


async def talk(riglm: Controlled) -> None:
    """A client's session with all that it would not have anybody read."""
    headers = {
        "authorization": f"Bearer {CANARIES['client-token']}",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
    }

    async def say(method: str, params: dict[str, Any], number: int | None) -> http.Response:
        message = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if number is None else {"id": number})
        answer = await http.send("POST", riglm.mcp, headers, json.dumps(message).encode(), PATIENCE)
        await answer.body()
        await answer.close()
        return answer

    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "talker", "version": "1"}}
    headers["mcp-session-id"] = (await say("initialize", hello, 1)).headers["mcp-session-id"]
    await say("notifications/initialized", {}, None)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("set_context", {"context": f"all about {CANARIES['context']}"}),
        ("search_available_tools", {"query": f"read {CANARIES['search']}"}),
        (f"here__{TOOLS[0]}", {"text": CANARIES["argument"], "deep": [{"er": CANARIES["nested-argument"]}]}),
        ("call_tool", {"name": f"here__{TOOLS[1]}", "arguments": {"text": CANARIES["argument"]}}),
    ]
    for number, (name, arguments) in enumerate(calls, 3):
        await say("tools/list", {}, 100 + number)
        await say("tools/call", {"name": name, "arguments": arguments}, number)


def every_answer(riglm: Controlled) -> list[tuple[str, Answer]]:
    """What every operation says, and the page's files; well asked and badly."""
    write, read = CANARIES["write-token"], CANARIES["read-token"]
    document = riglm.ask("GET", "/openapi.json", token=write)
    sessions = riglm.ask("GET", "/sessions", token=write).json.get("items", [])
    made = riglm.ask("POST", "/override", {"kind": "pin", "tool": f"here__{TOOLS[0]}", "reason": "x"}, token=write)
    known = {
        "session_id": [session["id"] for session in sessions] or [str(uuid4())],
        "tool_name": [f"here__{TOOLS[0]}", "no-such-tool"],
        "override_id": [made.json.get("id", str(uuid4()))],
    }
    paths = ["/nowhere", "/assets/nothing"]
    for path in document.json["paths"]:
        name = path.partition("{")[2].partition("}")[0]
        paths += [path.replace(f"{{{name}}}", value) for value in known[name]] if name else [path]
    shown = riglm.ask("GET", "/config", token=write)
    bad = {**shown.json, "naming": "nonsense", "storage": {"url": "nonsense"}}
    answers = [(path, riglm.ask("GET", path, token=None)) for path in page_files()]
    answers += [(path, riglm.ask("GET", path, token=token)) for token in (None, read, write) for path in paths]
    other = {"control": {"token": "another-token-0123"}}
    for body in (shown.json, bad, {"upstream": {"command": "x"}}, other, [], b"{"):
        answers.append(("PUT", riglm.ask("PUT", "/config", body, token=write)))
    answers.append(("HEAD", riglm.ask("HEAD", "/config", token=write)))
    answers.append(("DELETE", riglm.ask("DELETE", f"/override/{known['override_id'][0]}", token=write)))
    return [("/openapi.json", document), ("POST", made), *answers]


def page_files() -> list[str]:
    return ["/", *(f"/assets/{file.relative_to(ASSETS)}" for file in ASSETS.rglob("*") if file.is_file())]


def seen(riglm: Controlled, answers: list[tuple[str, Answer]]) -> list[tuple[str, str]]:
    """The canaries that somebody saw, and where."""
    texts = [(where, answer.body.decode("utf-8", "replace") + str(answer.headers)) for where, answer in answers]
    texts.append(("the log", riglm.log))
    return [(name, where) for where, text in texts for name, canary in CANARIES.items() if canary in text]


async def test_no_answer_page_metric_or_log_has_a_secret_or_anything_that_a_client_said(tmp_path: Path):
    with controlled(tmp_path, configuration=configuration(tmp_path), settings=UNSET) as riglm:
        await talk(riglm)
        answers = await asyncio.to_thread(every_answer, riglm)
        await asyncio.to_thread(riglm.process.end)
        by_path = {where: answer.status for where, answer in answers}
        assert by_path["/metrics"] == by_path["/stats/summary"] == by_path["/config"] == 200
        calls = [answer.json["calls"] for where, answer in answers if "/sessions/" in where and answer.status == 200]
        assert any(call["tool"] == f"here__{TOOLS[0]}" for each in calls for call in each)
        assert seen(riglm, answers) == []


async def test_the_passwords_of_store_and_state_are_not_told_when_they_are_away(tmp_path: Path):
    places = {
        "storage": {"url": f"postgresql://u:{CANARIES['store-password']}@127.0.0.1:9/riglm", "timeout": 0.5},
        "state": {"url": f"redis://:{CANARIES['state-password']}@127.0.0.1:9/0"},
    }
    with controlled(tmp_path, configuration=configuration(tmp_path, **places), settings=UNSET) as riglm:
        answers = await asyncio.to_thread(every_answer, riglm)
        await asyncio.to_thread(riglm.process.end)
        by_path = {where: answer.status for where, answer in answers}
        assert by_path["/health"] == 200
        assert by_path["/stats/summary"] == by_path["/tools"] == 503
        assert seen(riglm, answers) == []


UNSET = {"CONTROL__TOKEN": "", "CONTROL__READ_TOKEN": ""}
