import asyncio
import json

import pytest

from riglm.adapters.mcp.upstream import http_handshake_link as http_handshake
from riglm.adapters.mcp.upstream.deadlines import UpstreamTimeouts
from riglm.domain import jsonrpc
from riglm.ports.upstream import UpstreamLink
from tests.unit.adapters.upstream import web
from tests.unit.adapters.upstream.actors import Ears, ask, notification, settle, within
from tests.unit.adapters.upstream.web import LIMIT, Handler, WebServer, cut, hold, note, reply, saying, visibility
from tests.unit.adapters.wire.peers import Caller
from tests.waiting import wait_until_async

CHANGED = "notifications/tools/list_changed"


async def greet(link: UpstreamLink) -> None:
    await ask(link, "hello", "initialize").result()
    link.send(notification("notifications/initialized"))


async def test_a_link_that_closes_ends_its_session_but_waits_only_so_long(monkeypatch):
    monkeypatch.setattr(http_handshake, "_CLOSE_SECONDS", 0.05)
    server = WebServer()
    async with visibility(server) as upstream:
        link = upstream.connect(Ears())
        await greet(link)
        await link.close()
        assert server.deletes[0].headers["mcp-session-id"] == "s1"
        server.refuse_delete = True
        other = upstream.connect(Ears())
        await greet(other)
        await within(other.close())
        assert len(server.deletes) == 2
        server.session = b""
        third = upstream.connect(Ears())
        await greet(third)
        await within(third.close())
        assert len(server.deletes) == 2


async def test_nothing_follows_the_end_of_the_handshake_before_that_arrived():
    server = WebServer()
    gate = asyncio.Event()

    async def late(caller, message, asked):
        await gate.wait()
        await caller.say(web.ACCEPTED)

    server.handlers["notifications/initialized"] = late
    async with visibility(server) as upstream:
        link = upstream.connect(Ears())
        await greet(link)
        answer, given_up = ask(link, 1, "tools/list"), ask(link, 2, "tools/call")
        link.listen(listening=True)
        link.send(notification("notifications/roots/list_changed"))
        link.cancel(given_up, None)
        await wait_until_async(lambda: "notifications/initialized" in server.methods)
        await settle()
        assert server.methods[-1] == "notifications/initialized"
        assert server.gets == []
        gate.set()
        await answer.result()
        await wait_until_async(lambda: len(server.messages) == 5 and len(server.gets) == 1)
        assert "tools/call" not in server.methods


def forgetting(status: int, body: bytes = b"gone") -> Handler:
    """Refuse whatever names the first session."""

    async def handle(caller: Caller, message, asked):
        forgotten = asked.headers["mcp-session-id"] == "s1"
        said = body.replace(b"ID", json.dumps(message["id"]).encode())
        await caller.say(reply(said, status, b"text/plain") if forgotten else reply(web.result(message)))

    return handle


@pytest.mark.parametrize("status", [404, 410, 400])
async def test_a_session_that_is_forgotten_is_opened_anew_with_all_that_was_told(status):
    server = WebServer()
    async with visibility(server) as upstream:
        link = upstream.connect(Ears())
        await greet(link)
        await ask(link, 1, "logging/setLevel", {"level": "info"}).result()
        for uri in ("a:1", "a:2"):
            await ask(link, 2, "resources/subscribe", {"uri": uri}).result()
        await ask(link, 3, "resources/unsubscribe", {"uri": "a:1"}).result()
        server.handlers |= {"tools/call": forgetting(status), "ping": forgetting(status)}
        server.session = b"s2"
        before = len(server.messages)
        answers = [ask(link, number, "tools/call") for number in range(3)]
        for answer in answers:
            await answer.result()
        repeated = [message["method"] for message in server.messages[before:] if message["method"] != "tools/call"]
        proof = ["ping"] if status == 400 else []
        greeting = ["initialize", "notifications/initialized", "logging/setLevel", "resources/subscribe"]
        assert repeated == proof + greeting
        assert server.messages[-1]["method"] == "tools/call"
        assert server.requests[-1].headers["mcp-session-id"] == "s2"
        assert len(server.asked("tools/call")) == 6


@pytest.mark.parametrize("status", [404, 400])
async def test_a_refusal_that_names_the_request_and_the_session_means_that_the_session_is_forgotten(status):
    server = WebServer()
    body = b'{"jsonrpc":"2.0","id":ID,"error":{"code":-32600,"message":"Session not found"}}'
    server.handlers |= {"tools/call": forgetting(status, body), "ping": forgetting(status, body)}
    async with visibility(server) as upstream:
        link = upstream.connect(Ears())
        await greet(link)
        server.session = b"s2"
        assert await ask(link, 1, "tools/call").result() == {"was": "tools/call"}
        assert server.methods.count("initialize") == 2


async def test_a_404_in_a_session_about_an_unknown_method_is_the_answer_while_the_session_lives():
    server = WebServer()
    unknown = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such method"}}'
    server.handlers["vendor/method"] = saying(reply(unknown, 404))
    async with visibility(server) as upstream:
        link = upstream.connect(Ears())
        await greet(link)
        answer = ask(link, 1, "vendor/method")
        assert (await answer.error())["code"] == -32601
        assert server.methods.count("initialize") == 1
        assert len(server.asked("vendor/method")) == 1


@pytest.mark.parametrize("status", [400, 503])
@pytest.mark.parametrize("method", ["tools/call", "tools/list"])
async def test_a_request_that_a_living_session_refused_is_sent_once_and_gets_the_refusal(status, method):
    server = WebServer()
    server.handlers[method] = saying(reply(b"busy", status, b"text/plain"))
    async with visibility(server) as upstream:
        link = upstream.connect(Ears())
        await greet(link)
        assert await ask(link, 1, method).words() == f"upstream 'server' answered HTTP {status}"
        assert server.methods == ["initialize", "notifications/initialized", method, "ping"]


@pytest.mark.parametrize("proof", [cut, saying(reply(b"", 500)), saying(reply(b"", 202))])
async def test_a_proof_of_the_session_that_fails_for_another_reason_proves_nothing(proof):
    server = WebServer()
    server.handlers |= {"tools/call": saying(reply(b"busy", 503, b"text/plain")), "ping": proof}
    async with visibility(server) as upstream:
        link = upstream.connect(Ears())
        await greet(link)
        assert "answered HTTP 503" in await ask(link, 1, "tools/call").words()
        assert server.methods.count("initialize") == 1


async def test_a_call_that_may_have_run_is_not_repeated_in_a_new_session_and_the_next_one_works():
    server = WebServer()
    for method in ("tools/call", "tools/list", "ping"):
        server.handlers[method] = forgetting(503)
    async with visibility(server) as upstream:
        link = upstream.connect(Ears())
        await greet(link)
        server.session = b"s2"
        assert "answered HTTP 503" in await ask(link, 1, "tools/call").words()
        assert len(server.asked("tools/call")) == 1
        await ask(link, 2, "tools/call").result()
        assert server.methods.count("initialize") == 2


async def test_an_http_error_under_an_id_of_its_own_answers_the_request_that_got_it():
    server = WebServer()
    body = b'{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"no"}}'
    server.handlers["tools/call"] = saying(reply(body, 400))
    async with visibility(server) as upstream:
        link = upstream.connect(Ears())
        await greet(link)
        answer = ask(link, 1, "tools/call")
        assert (await answer.error())["message"] == "no"
        assert answer.raw["id"] == 1


async def test_what_has_no_effects_is_repeated_in_a_new_session_whatever_the_refusal_was():
    server = WebServer()
    server.handlers |= {"tools/list": forgetting(503), "ping": forgetting(503)}
    async with visibility(server) as upstream:
        link = upstream.connect(Ears())
        await greet(link)
        server.session = b"s2"
        assert await ask(link, 1, "tools/list").result() == {"was": "tools/list"}


@pytest.mark.parametrize(
    ("opening", "words"),
    [
        (saying(reply(b"down", 500)), "answered HTTP 500"),
        (saying(reply(b'{"jsonrpc":"2.0","id":"riglm-again","error":{"code":1}}')), "answered by HTTP 200"),
        (saying(reply(b"x" * (LIMIT + 1))), "over the limit"),
        (cut, "could not be greeted again"),
        (hold, "it did not answer in time"),
    ],
)
async def test_a_server_that_cannot_be_greeted_again_fails_what_it_refused(monkeypatch, opening, words):
    server = WebServer()
    async with visibility(server, timeout_seconds=UpstreamTimeouts(initialize=0.3)) as upstream:
        link = upstream.connect(Ears())
        await greet(link)
        server.handlers["tools/call"] = saying(reply(b"", 404))
        server.handlers["initialize"] = opening
        assert words in await ask(link, 1, "tools/call").words()


async def test_a_new_session_may_open_on_an_event_stream():
    server = WebServer()

    async def by_events(caller: Caller, message, asked):
        await caller.say(web.STREAM % b"Mcp-Session-Id: s2\r\n" + web.event(b"", "1") + web.event(b"{broken"))
        await caller.say(web.event(note("notifications/message")) + web.event(web.result(message)) + web.chunk(b":\n"))
        await caller.hang_up()

    async with visibility(server) as upstream:
        link = upstream.connect(Ears())
        await greet(link)
        server.handlers["initialize"] = by_events
        server.handlers["tools/call"] = saying(reply(b"", 404), reply(b'{"jsonrpc":"2.0","id":1,"result":{}}'))
        assert await ask(link, 1, "tools/call").result() == {}
        assert server.requests[-1].headers["mcp-session-id"] == "s2"
        assert "mcp-protocol-version" not in server.requests[-1].headers


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_server_may_ask_the_client_before_it_answers_a_handshake(is_new):
    server, ears, answered = WebServer(), Ears(), asyncio.Event()

    async def asking(caller: Caller, message, asked):
        await caller.say(
            web.STREAM % b"Mcp-Session-Id: s2\r\n" + web.event(b'{"jsonrpc":"2.0","id":5,"method":"ping"}')
        )
        await answered.wait()
        await caller.say(web.event(web.result(message, {"protocolVersion": "2025-11-25"})) + web.END)

    async def take_answer(caller: Caller, message, asked):
        assert message == {"jsonrpc": "2.0", "id": 5, "result": {}}
        assert asked.headers["mcp-session-id"] == "s2"
        await caller.say(web.ACCEPTED)
        answered.set()

    server.handlers["None"] = take_answer
    async with visibility(server) as upstream:
        link = upstream.connect(ears)
        if is_new:
            server.handlers["initialize"] = asking
            opening = ask(link, "hello", "initialize")
            await wait_until_async(lambda: opening.heard)
        else:
            await greet(link)
            server.handlers["initialize"] = asking
            server.handlers["tools/call"] = saying(reply(b"", 404), reply(b'{"jsonrpc":"2.0","id":1,"result":{}}'))
            opening = ask(link, 1, "tools/call")
            await wait_until_async(lambda: ears.heard)
        link.send(jsonrpc.result(b"5", b"{}"))
        await opening.result()


async def test_a_stream_that_breaks_is_taken_up_where_it_broke_off():
    server = WebServer()
    seen: list[str | None] = []

    async def stream(caller: Caller, asked):
        seen.append(asked.headers.get("last-event-id"))
        await caller.say(web.STREAM % b"")
        if len(seen) == 1:
            await caller.say(web.event(note(CHANGED), "7", 1))
            caller.reset()
            raise ConnectionError
        if len(seen) == 2:
            await caller.say(web.END)
            return
        await caller.say(web.event(note("notifications/last")))
        await caller.hang_up()

    server.on_get = stream
    ears = Ears()
    async with visibility(server) as upstream:
        link = upstream.connect(ears)
        await greet(link)
        link.listen(listening=True)
        await wait_until_async(lambda: len(ears.heard) == 2)
        assert seen == [None, "7", "7"]


@pytest.mark.parametrize(
    "answer",
    [
        reply(b"", 405),
        reply(b'{"status":"ok"}'),
        reply(b"<html>", kind=b"text/html"),
        reply(b"no", 500),
        reply(b"", 204),
    ],
)
async def test_a_server_without_such_a_stream_is_asked_once(answer):
    server = WebServer()

    async def on_get(caller, request):
        await caller.say(answer)

    server.on_get = on_get
    async with visibility(server) as upstream:
        link = upstream.connect(Ears())
        await greet(link)
        link.listen(listening=True)
        await wait_until_async(lambda: len(server.gets) == 1 and link._listening._exchange is None)
        assert link._listening._timer is None


async def test_an_odd_revision_is_not_put_into_a_header():
    server = WebServer()
    server.version = "2025\r\nx: y"
    async with visibility(server) as upstream:
        link = upstream.connect(Ears())
        await greet(link)
        await ask(link, 1, "tools/list").result()
        assert "mcp-protocol-version" not in server.requests[-1].headers
