import asyncio
import os
from collections.abc import Sequence
from typing import Any

from riglm.domain.invocation import ToolInvocation
from riglm.domain.session import Session
from tests.interaction import text
from tests.interaction.clients.raw import HANDSHAKE, MODERN
from tests.interaction.clients.stdio import StdioLink
from tests.interaction.clients.streamable import StreamableLink
from tests.interaction.route import CORNERS, HTTP_FRONT, MAIN, OLD, RIGLM, STDIO_BACK, STDIO_FRONT, Route, routes
from tests.interaction.servers import catalog
from tests.interaction.stage import Stage, raw_post

SECRETS = {
    place: f"canary-{place}-5e1f3c9a77"
    for place in (
        "argument",
        "nested-argument",
        "result",
        "error",
        "error-data",
        "meta",
        "client-header",
        "client-cookie",
        "upstream-token",
        "upstream-header",
        "upstream-user",
        "upstream-query",
        "child-environment",
        "command-argument",
        "resource-uri",
        "prompt-argument",
        "sampling-answer",
        "session-key",
        "root",
        "bad-message",
    )
}


Recorded = tuple[Session, Sequence[ToolInvocation]]


def sessions(stage: Stage) -> list[Recorded]:
    """Every recorded session with its invocations, oldest first; riglm must have ended."""
    with stage.store() as store:
        found = [(summary.session, store.list_invocations(summary.session.id)) for summary in store.list_sessions()]
    return sorted(found, key=lambda recorded: recorded[0].id)


def end(stage: Stage, route: Route, *flags: str) -> None:
    """End a serving riglm, so that all is written."""
    if route.front != "stdio":
        assert stage.served_by(stage.serve(*stage.back(route.back, *flags))).end() == 0


@routes(MAIN + OLD[:1])
async def test_every_call_is_recorded_in_order_with_its_outcome(stage: Stage, route: Route):
    log = stage.log()
    calls: list[tuple[str, Any, str | None]] = [
        ("nonce", {"nonce": "1"}, None),
        ("is_error", {}, "tool"),
        ("fail", {"code": -31999, "message": "no"}, "protocol"),
        ("no such tool", {}, "protocol"),
        ("counter", {}, None),
    ]
    async with stage.client(route) as client:
        await client.request("tools/list")
        for tool, arguments, _ in calls:
            await client.call(tool, arguments)
        exchange = await client.start_call("slow", {"hold": True, "marker": "m"})
        await log.wait_for_event("holding")
        await exchange.cancel()
        await log.wait_for_event("cancelled")
        await client.call("nonce", {"nonce": "1"})
    end(stage, route)
    ((session, found),) = sessions(stage)
    assert (session.era, session.transport, session.client.name) == (route.era, route.front, "raw")
    assert len(session.tools_available) == len(catalog.NAMES)
    assert [(invocation.tool, invocation.error_kind) for invocation in found] == [
        *((tool, kind) for tool, _, kind in calls),
        ("slow", "cancelled"),
        ("nonce", None),
    ]
    assert [invocation.sequence_number for invocation in found] == list(range(1, len(calls) + 3))
    assert [invocation.success for invocation in found] == [invocation.error_kind is None for invocation in found]
    assert [invocation.error_code for invocation in found if invocation.tool == "fail"] == [-31999]
    assert all(invocation.duration_ms > 0 for invocation in found)
    assert found[0].arguments_hash == found[-1].arguments_hash != found[4].arguments_hash
    assert [invocation.arguments for invocation in found] == [None] * len(found)


@routes(STDIO_BACK)
async def test_calls_without_an_answer_are_recorded(stage: Stage, route: Route):
    env = {"RIGLM_TIMEOUTS__CALL": "1"}
    async with stage.client(route, env=env) as client:
        await client.call("die")
        await client.call("hang")
    if route.front != "stdio":
        assert stage.served_by(stage.serve(*stage.back(route.back), env=env)).end() == 0
    ((_, found),) = sessions(stage)
    assert [(invocation.tool, invocation.error_kind) for invocation in found] == [
        ("die", "unavailable"),
        ("hang", "timeout"),
    ]


@routes(HTTP_FRONT, HANDSHAKE)
async def test_each_connection_is_a_session(stage: Stage, route: Route):
    for number in range(3):
        async with stage.client(route) as client:
            for _ in range(number + 1):
                await client.call("counter")
    end(stage, route)
    recorded = sessions(stage)
    assert [[invocation.sequence_number for invocation in found] for _, found in recorded] == [[1], [1, 2], [1, 2, 3]]
    assert {(session.method, session.confidence) for session, _ in recorded} == {("connection", "connection")}
    assert all(session.ended_at for session, _ in recorded)


@routes(CORNERS)
async def test_conversations_named_in_meta_are_sessions(stage: Stage, route: Route):
    async with stage.client(route) as client:
        for thread in ("a", "b", "a"):
            await client.call("nonce", {"nonce": thread}, meta={"threadId": thread})
    end(stage, route)
    recorded = [(session, found) for session, found in sessions(stage) if found]
    assert sorted(len(found) for _, found in recorded) == [1, 2]
    assert {(session.method, session.confidence) for session, _ in recorded} == {("meta_key", "exact")}


@routes(STDIO_FRONT[:1])
async def test_a_conversation_named_in_the_environment_is_a_session(stage: Stage, route: Route):
    async with stage.client(route, env={"CLAUDE_CODE_SESSION_ID": "conversation"}) as client:
        await client.call("counter")
    ((session, _),) = sessions(stage)
    assert (session.method, session.confidence) == ("environment", "exact")


@routes(HTTP_FRONT, MODERN)
async def test_modern_http_clients_without_a_name_are_told_apart_weakly(stage: Stage, route: Route):
    async with stage.client(route) as client:
        for _ in range(3):
            await client.call("counter")
    end(stage, route)
    ((session, found),) = [(session, found) for session, found in sessions(stage) if found]
    assert len(found) == 3
    assert session.confidence in ("inferred", "weak")


@routes(CORNERS)
async def test_calls_at_once_are_all_recorded(stage: Stage, route: Route):
    async with stage.client(route) as client:
        exchanges = [await client.start_call("nonce", {"nonce": str(number)}) for number in range(200)]
        for exchange in exchanges:
            await exchange.answer()
    end(stage, route)
    numbers = [invocation.sequence_number for _, found in sessions(stage) for invocation in found]
    assert numbers == list(range(1, 201))


async def test_clients_that_share_a_database_lose_nothing(stage: Stage):
    async def one(number: int) -> None:
        route = Route("stdio" if number % 2 else "http", "stdio", RIGLM, HANDSHAKE)
        for _ in range(2):
            async with stage.client(route) as client:
                for _ in range(10):
                    await client.call("counter")

    await asyncio.gather(*(one(number) for number in range(4)))
    end(stage, Route("http", "stdio", RIGLM, HANDSHAKE))
    assert stage.damage() == []
    assert [[invocation.sequence_number for invocation in found] for _, found in sessions(stage)] == [
        list(range(1, 11))
    ] * 8


def _places(stage: Stage) -> list[tuple[str, str]]:
    """Which secrets lie where in what riglm wrote: its data and its stderr, less what the servers said there."""
    files = [path for path in (stage.folder / "data").rglob("*") if path.is_file()]
    files += [stage.folder / "child.stderr", stage.folder / "riglm.stderr"]
    found = []
    for file in files:
        content = file.read_bytes() if file.exists() else b""
        found += [(place, file.name) for place, secret in SECRETS.items() if secret.encode() in content]
    return found


@routes(MAIN)
async def test_planted_secrets_are_found_nowhere(stage: Stage, route: Route):
    flags = ("--bearer", SECRETS["upstream-token"]) if route.back == "http" else ("--name", SECRETS["command-argument"])
    entry = stage.entry(route.back, *flags)
    if route.back == "http":
        origin = entry["url"].removeprefix("http://")
        entry["url"] = f"http://{origin}?key={SECRETS['upstream-query']}"
        entry["headers"] = {
            "Authorization": f"Bearer {SECRETS['upstream-token']}",
            "X-Api-Key": SECRETS["upstream-header"],
        }
    else:
        entry["env"] = {"SOME_TOKEN": SECRETS["child-environment"]}
    upstream = stage.config("secret", {"secret": entry})
    headers = {"authorization": f"Bearer {SECRETS['client-header']}", "cookie": f"s={SECRETS['client-cookie']}"}

    def sample(_: object) -> bytes:
        return text.dump({"content": SECRETS["sampling-answer"]})

    def roots(_: object) -> bytes:
        return text.dump({"roots": [{"uri": f"file:///home/{SECRETS['root']}"}]})

    answers = {"sampling/createMessage": sample, "roots/list": roots}
    env = {"RIGLM_LOGGING__LEVEL": "debug", "CLAUDE_CODE_SESSION_ID": SECRETS["session-key"]}
    async with stage.client(
        route, upstream=upstream, headers=None if route.front == "stdio" else headers, env=env, answers=answers
    ) as client:
        await client.request("tools/list")
        secret = {"secret": SECRETS["argument"], "deep": [{"x": SECRETS["nested-argument"]}]}
        await client.call("echo", secret, meta={"threadId": SECRETS["session-key"], "x": SECRETS["meta"]})
        await client.call("verbatim", {"hex": text.dump({"content": [], "s": SECRETS["result"]}).hex()})
        await client.call("fail", {"code": -31999, "message": SECRETS["error"], "data": SECRETS["error-data"]})
        await client.request("resources/read", {"uri": f"note://scripted/{SECRETS['resource-uri']}"})
        await client.request("prompts/get", {"name": "greet", "arguments": {"topic": SECRETS["prompt-argument"]}})
        if route.era == HANDSHAKE:
            for method in answers:
                await client.call("ask", {"method": method})
        await _bad_message(client.link)
        if route.back == "stdio":
            await client.call("noise", {"kind": "banner"})
            await client.call("die", {"why": SECRETS["argument"]})
        else:
            stage.kill(*stage.network_server(*flags))
            await client.call("echo", secret)
        client.strays.clear()
    stage.close()
    assert (stage.folder / "data" / "riglm.db").stat().st_size > 0
    assert _places(stage) == []


async def _bad_message(link: object) -> None:
    bad = text.dump({"jsonrpc": "2.0", "id": {}, "method": "x", "params": {"x": SECRETS["bad-message"]}})
    if isinstance(link, StdioLink):
        await link.write(bad + b"\n" + bad[:-5] + b"\n")
        return
    assert isinstance(link, StreamableLink)
    await raw_post(link.url, bad, {"mcp-session-id": link.session_id or ""})


async def test_the_key_and_the_data_are_for_the_user_alone(stage: Stage):
    route = Route("stdio", "stdio", RIGLM, HANDSHAKE)
    async with stage.client(route) as client:
        await client.call("echo", {"word": "guess"})
    data = stage.folder / "data"
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in data.iterdir() if path.is_file()} == {
        path.name: "0o600" for path in data.iterdir() if path.is_file()
    }
    assert os.listdir(data)  # noqa: PTH208  # names are enough
