import json

import pytest

from riglm.adapters.mcp.upstream import http_post
from riglm.domain.invocation import ErrorKind
from tests.unit.adapters.upstream import web
from tests.unit.adapters.upstream.actors import Ears, ask
from tests.unit.adapters.upstream.web import (
    ANSWER,
    LIMIT,
    WebServer,
    answer_plainly,
    cut,
    note,
    reply,
    saying,
    streaming,
    visibility,
)
from tests.unit.adapters.wire.peers import Caller
from tests.waiting import wait_until_async

PROGRESS = note("notifications/progress", {"progressToken": 1})


@pytest.mark.parametrize("finish", [True, False])
async def test_what_precedes_the_answer_on_its_stream_belongs_to_the_request(finish, monkeypatch):
    monkeypatch.setattr(http_post, "_LINGER_SECONDS", 0.02)
    server = WebServer()
    server.handlers["tools/call"] = streaming(
        web.event(b"", "1", 500),
        web.chunk(b"data\n\n"),
        web.event(PROGRESS, "2"),
        ANSWER,
        web.event(note("notifications/late")),
        finish=finish,
    )
    async with visibility(server) as upstream:
        link = upstream.connect(Ears())
        answer = ask(link, 1, "tools/call")
        assert await answer.result() == {"was": "tools/call"}
        assert [message.method for message in answer.heard] == ["notifications/progress"]
        assert answer.status == 200
        [route] = upstream.place.client._routes.values()
        await wait_until_async(lambda: bool(route.pool._idle) if finish else not route.pool._open)
        if finish:
            await ask(link, 2, "tools/list").result()
            assert server.served.callers == 1, "the connection is used again"


@pytest.mark.parametrize(
    ("response", "words", "kind"),
    [
        (web.ACCEPTED, "accepted the request without an answer", ErrorKind.PROTOCOL),
        (reply(b"hello"), "sent an answer that is no JSON-RPC message", ErrorKind.PROTOCOL),
        (reply(note("notifications/x")), "sent an answer that is no JSON-RPC message", ErrorKind.PROTOCOL),
        (reply(b"no", 401), "(HTTP 401): run `riglm login server`, or see `auth`", ErrorKind.UNAVAILABLE),
        (reply(b"no", 403), "refused the credentials (HTTP 403)", ErrorKind.UNAVAILABLE),
        (reply(b"no", 429), "answered HTTP 429", ErrorKind.UNAVAILABLE),
        (reply(b"no", 502), "answered HTTP 502", ErrorKind.UNAVAILABLE),
        (reply(b"no", 302), "answered HTTP 302", ErrorKind.PROTOCOL),
        (reply(b"x" * (LIMIT + 1)), f"over the limit of {LIMIT} bytes", ErrorKind.PROTOCOL),
        (reply(b'{"id":2,"result":{}}'), "answered under an id that was not asked", ErrorKind.PROTOCOL),
    ],
)
async def test_an_answer_that_is_none_is_an_error_that_says_so(response, words, kind):
    server = WebServer()
    server.handlers["tools/call"] = saying(response)
    async with visibility(server) as upstream:
        answer = ask(upstream.connect(Ears()), 1, "tools/call")
        found = await answer.words()
        assert found.startswith("upstream 'server' ")
        assert words in found
        assert answer.failure[0] is kind


@pytest.mark.parametrize("kind", ["json", "events"])
@pytest.mark.parametrize(("asked", "given"), [(2, "2"), ("7", 7.0)])
async def test_an_answer_may_give_the_id_in_another_type(asked, given, kind):
    server = WebServer()
    line = json.dumps({"jsonrpc": "2.0", "id": given, "result": {}}).encode()
    server.handlers["tools/call"] = saying(reply(line)) if kind == "json" else streaming(web.event(line))
    async with visibility(server) as upstream:
        answer = ask(upstream.connect(Ears()), asked, "tools/call")
        assert await answer.result() == {}
        assert answer.raw["id"] == asked


@pytest.mark.parametrize("named", [{"id": None}, {}])
@pytest.mark.parametrize(("kind", "status"), [("json", 200), ("json", 400), ("json", 500), ("events", 200)])
async def test_an_error_that_could_not_name_the_request_is_its_answer(named, status, kind):
    server = WebServer()
    line = json.dumps({"jsonrpc": "2.0", **named, "error": {"code": -32700, "message": "unreadable"}}).encode()
    server.handlers["tools/call"] = saying(reply(line, status)) if kind == "json" else streaming(web.event(line))
    async with visibility(server) as upstream:
        answer = ask(upstream.connect(Ears()), 1, "tools/call")
        assert (await answer.error())["code"] == -32700
        assert (answer.raw["id"], answer.status) == (1, status)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((web.event(b"{broken"),), "closed the stream before its answer, after an event that is no message"),
        ((web.event(b'{"jsonrpc":"2.0","id":1,"result":{"x":}}'),), "sent an unreadable answer"),
        ((web.event(b'{"jsonrpc":"2.0","id":7,"result":{}}'),), "after an answer under an id that was not asked"),
        ((web.event(b"x" * (LIMIT + 1)),), f"over the limit of {LIMIT} bytes"),
        ((web.event(PROGRESS),), "closed the stream before its answer"),
    ],
)
async def test_a_stream_without_an_answer_is_an_error_that_says_so(parts, words):
    server = WebServer()
    server.handlers["tools/call"] = streaming(*parts)
    async with visibility(server) as upstream:
        link = upstream.connect(Ears())
        assert words in await ask(link, 1, "tools/call").words()
        await ask(link, 2, "tools/list").result()


@pytest.mark.parametrize(
    "noise",
    [
        b"event: ping\ndata: 2026-01-01\n\n",
        b'event: connected\ndata: {"sessionId":"x"}\n\n',
        b'data: {"type":"heartbeat"}\n\n',
        b"data: [DONE]\n\n",
        b"data: {broken\n\n",
        b"data: []\n\n",
        b"data: \xff\n\n",
        b'data: {"jsonrpc":"2.0","id":99,"result":{}}\n\n',
    ],
)
async def test_events_that_are_no_answer_are_skipped(noise, caplog):
    server = WebServer()
    server.handlers["tools/call"] = streaming(web.chunk(noise), web.chunk(noise), web.ANSWER, web.chunk(noise))
    async with visibility(server) as upstream:
        assert await ask(upstream.connect(Ears()), 1, "tools/call").result() == {"was": "tools/call"}
    assert caplog.messages.count("skipped what is no answer") == 1


@pytest.mark.parametrize("data", [b"[%b]", b" [ %b ] ", b"\xef\xbb\xbf%b", b"\xef\xbb\xbf[%b]"])
async def test_an_answer_in_an_event_may_be_a_batch_of_one_or_begin_with_a_mark(data):
    server = WebServer()
    server.handlers["tools/call"] = streaming(web.event(data % b'{"jsonrpc":"2.0","id":1,"result":{"a":1}}'))
    async with visibility(server) as upstream:
        assert await ask(upstream.connect(Ears()), 1, "tools/call").result() == {"a": 1}


@pytest.mark.parametrize(
    ("body", "header", "words"),
    [
        (b"Your plan has ended", b"", "; it says: Your plan has ended"),
        (b'{"error":"x","error_description":"The token\\nhas expired"}', b"", "; it says: The token has expired"),
        (b'{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"No seat"}}', b"", "; it says: No seat"),
        (b'{"detail":[{"loc":["header"],"msg":"Field required"}]}', b"", "; it says: Field required"),
        (b'{"errors":[{"code":1},{"message":"No plan"}]}', b"", "; it says: No plan"),
        (b'{"reason":"blocked"}', b"", "; it says: blocked"),
        (b'{"Message":"denied by policy"}', b"", "; it says: denied by policy"),
        (b'{"title":"Unauthorized","detail":"expired"}', b"", "; it says: expired"),
        (b"<html>", b"", "of the upstream"),
        (b"", b'WWW-Authenticate: Bearer error="insufficient_scope", scope="a b"\r\n', "; it requires the scope a b"),
        (b"", b'WWW-Authenticate: Bearer error_description="Not today"\r\n', "; it says: Not today"),
        (b"", b'WWW-Authenticate: Bearer error_description="need \\"a\\" \\\\"\r\n', '; it says: need "a" \\'),
    ],
)
@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_keeps_the_text_of_the_server(status, body, header, words):
    server = WebServer()
    server.handlers["tools/call"] = saying(reply(body, status, headers=header))
    async with visibility(server) as upstream:
        found = await ask(upstream.connect(Ears()), 1, "tools/call").words()
    assert f"refused the credentials (HTTP {status})" in found
    assert found.endswith(words)


def redirecting(status: int, *paths: str):
    """A server whose `paths` redirect to the next ones; the last one answers, and others do not exist."""
    server = WebServer()
    server.paths = list(paths)
    post, seen = server.post, []

    async def moved(caller, request):
        path = request.line.split(" ")[1]
        seen.append(path)
        if path == server.paths[-1]:
            await post(caller, request)
        elif path not in server.paths:
            await caller.say(reply(b"", 404))
        else:
            location = server.paths[server.paths.index(path) + 1]
            await caller.say(reply(b"moved", status, headers=f"Location: {location}\r\n".encode()))

    server.post = moved
    return server, seen


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("paths", [("/mcp", "/mcp/"), ("/mcp", "/a", "/b?k=1")])
async def test_a_redirect_within_the_origin_is_followed_and_remembered(status, paths):
    server, seen = redirecting(status, *paths)
    async with visibility(server, headers={"Authorization": "Bearer x"}) as upstream:
        link = upstream.connect(Ears())
        assert await ask(link, 1, "tools/call", {"name": "a"}).result() == {"was": "tools/call"}
        assert await ask(link, 2, "tools/list").result() == {"was": "tools/list"}
        assert seen == [*paths, paths[-1]]
        assert [one.headers["authorization"] for one in server.requests] == ["Bearer x", "Bearer x"]


async def test_a_redirect_that_changed_since_it_was_remembered_is_followed_anew():
    server, seen = redirecting(307, "/mcp", "/a")
    async with visibility(server) as upstream:
        link = upstream.connect(Ears())
        assert await ask(link, 1, "tools/list").result() == {"was": "tools/list"}
        server.paths = ["/mcp", "/b"]
        for number in (2, 3):
            assert await ask(link, number, "tools/list").result() == {"was": "tools/list"}
    assert seen == ["/mcp", "/a", "/a", "/mcp", "/b", "/b"]


@pytest.mark.parametrize(
    ("status", "location", "words"),
    [
        (307, "http://elsewhere.test/mcp", "redirects to http://elsewhere.test/mcp, which is another origin"),
        (307, "//elsewhere.test/mcp", "redirects to http://elsewhere.test/mcp, which is another origin"),
        (308, "https://127.0.0.1/mcp?secret=1", "redirects to https://127.0.0.1/mcp?…, which is another origin"),
        (308, "/", "redirects again and again, at last to http://127.0.0.1"),
        (302, "/mcp/", "where a request would lose its content"),
        (301, "/mcp/", "where a request would lose its content"),
        (303, "?k=1", "where a request would lose its content"),
        (307, "http://[", "redirects to what is no URL"),
        (303, "ftp://elsewhere.test/", "redirects to what is no URL"),
    ],
)
async def test_a_redirect_that_is_not_followed_is_named_in_the_error(status, location, words):
    server = WebServer()
    answer = reply(b"", status, headers=f"Location: {location}\r\n".encode())
    server.handlers["tools/call"] = saying(answer)
    async with visibility(server) as upstream:
        found = await ask(upstream.connect(Ears()), 1, "tools/call").words()
    assert found.startswith(f"upstream 'server' answered HTTP {status} and ")
    assert words in found
    assert len(server.requests) <= 11


async def test_a_stream_that_breaks_is_taken_up_where_it_broke_off_and_not_asked_twice():
    server = WebServer()
    server.handlers["tools/call"] = streaming(web.event(PROGRESS, "7", 1))
    ends = iter([False, True])

    async def rest(caller: Caller, asked):
        await caller.say(web.STREAM % b"")
        if next(ends):
            await caller.say(web.event(web.result(server.messages[-1])) + web.END)
        else:
            caller.reset()
            raise ConnectionError

    server.on_get = rest
    async with visibility(server) as upstream:
        answer = ask(upstream.connect(Ears()), 1, "tools/call")
        assert await answer.result() == {"was": "tools/call"}
        assert [one.headers["last-event-id"] for one in server.gets] == ["7", "7"]
        assert server.methods == ["tools/call"]
        assert len(answer.heard) == 1


async def test_a_stream_that_breaks_again_and_again_is_an_error(monkeypatch):
    monkeypatch.setattr(http_post, "_MAX_RESUMPTIONS", 3)
    server = WebServer()
    server.handlers["tools/call"] = streaming(web.event(b"", "7", 1))

    async def nothing(caller: Caller, asked):
        await caller.say(web.STREAM % b"" + web.END)

    server.on_get = nothing
    async with visibility(server) as upstream:
        assert "again and again" in await ask(upstream.connect(Ears()), 1, "tools/call").words()
        assert len(server.gets) == 3


async def test_a_stream_that_cannot_be_taken_up_is_no_reason_to_run_the_request_twice():
    server = WebServer()
    server.handlers["tools/call"] = streaming(web.event(b"", "7", 1))

    async def forgotten(caller: Caller, asked):
        await caller.say(reply(b"", 404))

    server.on_get = forgotten
    async with visibility(server) as upstream:
        link = upstream.connect(Ears())
        await ask(link, 0, "initialize").result()
        assert "answered HTTP 404" in await ask(link, 1, "tools/call").words()
        assert server.methods.count("tools/call") == 1


async def test_a_cut_connection_fails_what_may_have_effects_and_repeats_the_rest_once():
    server = WebServer()
    async with visibility(server) as upstream:
        link = upstream.connect(Ears())
        await ask(link, 0, "ping").result()
        server.handlers["tools/list"] = web.in_turn(cut, answer_plainly)
        await ask(link, 1, "tools/list").result()
        server.handlers["prompts/list"] = cut
        assert "gave no usable answer" in await ask(link, 2, "prompts/list").words()
        assert server.methods.count("prompts/list") == 2
