"""What the HTTP front does not take: strangers, wrong requests, broken, slow and endless ones."""

import zipfile
from pathlib import Path

import pytest

from riglm.adapters.mcp.downstream import http_request, http_server
from riglm.adapters.mcp.downstream.http_server import Rejection, RequestGuard
from tests.unit.adapters.downstream.conftest import Front, Started
from tests.unit.adapters.downstream.peer import Response, request

SUITE = Path(__file__).parent / "data" / "jsontestsuite.zip"
PAGE = "https://app.example"


async def test_a_page_of_an_allowed_origin_is_told_which_headers_it_may_send(start: Started):
    peer = await (await start(allowed_origins=[PAGE])).peer()
    asks = {"origin": PAGE, "access-control-request-method": "POST"}
    may = await (await peer.send("OPTIONS", headers={**asks, "access-control-request-headers": "mcp-param-x"})).whole()
    assert may.headers["access-control-allow-headers"] == "mcp-param-x"
    assert "access-control-allow-private-network" not in may.headers
    may = await (await peer.send("OPTIONS", headers={**asks, "access-control-request-private-network": "true"})).whole()
    assert may.headers["access-control-allow-private-network"] == "true"
    assert "mcp-session-id" in may.headers["access-control-allow-headers"]


@pytest.mark.parametrize("page", ["http://localhost:6274", "https://127.0.0.1", "http://[::1]:5", PAGE])
async def test_a_page_that_may_send_requests_can_read_every_answer(start: Started, page: str):
    front = await start(allowed_origins=[PAGE], transport="both", token="a-token-of-some-length-0123")
    peer = await front.peer()
    asks = {"origin": page, "access-control-request-method": "POST"}
    for path in ("/mcp", "/mcp/profile", "/sse", "/messages", "/.well-known/oauth-protected-resource/mcp"):
        may = await (await peer.send("OPTIONS", path=path, headers=asks)).whole()
        assert (may.status, may.headers["access-control-allow-origin"], may.headers["vary"]) == (204, page, "origin")
    own = {"origin": page, "authorization": "Bearer a-token-of-some-length-0123"}
    for status, method, path, headers in (
        (401, "POST", "/mcp", {"origin": page}),
        (404, "GET", "/.well-known/oauth-protected-resource", own),
        (404, "DELETE", "/mcp", {**own, "mcp-session-id": "unknown"}),
        (405, "PUT", "/mcp", own),
        (415, "POST", "/mcp", {**own, "content-type": "text/plain"}),
        (421, "POST", "/mcp", {**own, "host": "elsewhere.example"}),
    ):
        answer = await (await peer.send(method, path=path, headers=headers)).whole()
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (status, page)
        assert "access-control-allow-credentials" not in answer.headers
        assert {"mcp-session-id", "www-authenticate"} <= set(
            answer.headers["access-control-expose-headers"].split(", ")
        )
    stream = await peer.send("GET", path="/sse", headers=own)
    assert (stream.status, stream.headers["access-control-allow-origin"]) == (200, page)


def test_a_listener_on_every_address_takes_numbers_but_no_names():
    gate = RequestGuard("0.0.0.0")
    assert gate.admit({b"host": b"192.0.2.1:80"}) == ""
    assert isinstance(gate.admit({b"host": b"attacker.example"}), Rejection)
    assert isinstance(RequestGuard("192.0.2.1").admit({b"host": b"192.0.2.2"}), Rejection)


@pytest.mark.parametrize("kind", ["text/plain", "application/jsonx", "application/x-www-form-urlencoded", "", None])
async def test_a_body_that_is_not_said_to_be_json_is_refused(front: Front, kind: str | None):
    peer = await front.peer()
    answer = await (await peer.ask("initialize", headers={"content-type": kind})).whole()
    assert answer.status == 415


@pytest.mark.parametrize(
    "accept", ["application/json", "text/event-stream", "text/html", "application/jsonx, text/event-streams", None]
)
async def test_a_client_must_take_both_kinds_of_answers(front: Front, accept: str | None):
    peer = await front.peer()
    assert (await (await peer.ask("initialize", headers={"accept": accept})).whole()).status == 406


async def test_a_stream_must_be_taken_as_one(front: Front):
    peer = await front.greeted()
    assert (await (await peer.send("GET", headers={"accept": "application/json"})).whole()).status == 406


async def test_every_file_of_the_json_test_suite_is_taken_or_refused_as_it_says(front: Front):
    peer = await front.greeted()
    with zipfile.ZipFile(SUITE) as suite:
        files = {Path(name).name: suite.read(name) for name in suite.namelist() if name.startswith("test_parsing/")}
    assert len(files) == 318
    for name, raw in files.items():
        alone = await (await peer.send("POST", raw)).whole()
        assert alone.status == 400, name
        body = b'{"jsonrpc":"2.0","id":1,"method":"echo","params":{"v":' + raw + b"}}"
        answer = await (await peer.send("POST", body)).whole()
        expected = {"y": (200,), "n": (400,), "i": (200, 400)}[name[0]]
        assert answer.status in expected, name
    assert (await (await peer.ask("echo", {"still": "here"})).whole()).events[1].data


async def test_a_body_over_the_limit_is_refused_before_it_is_read(start: Started):
    front = await start(limits={"request_bytes": 65_536})
    peer = await front.greeted()
    own = {"content-type": "application/json", "content-length": "65537"}
    assert (await peer.send("POST", headers=own)).status == 413


async def test_a_body_that_grows_over_the_limit_is_refused_and_the_refusal_can_be_read(start: Started):
    front = await start(limits={"request_bytes": 65_536})
    peer = await front.greeted()
    await peer.write("POST", headers={"content-type": "application/json", "transfer-encoding": "chunked"})
    for _ in range(64):
        peer.writer.write(b"10000\r\n" + b"x" * 65_536 + b"\r\n")
        await peer.writer.drain()
    peer.writer.write(b"0\r\n\r\n")
    answer = await (await Response(peer.reader, peer.writer).head()).whole()
    assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert "limit of 65536 bytes" in answer.message["error"]["message"]
    again = await front.beside(peer)
    assert (await (await again.ask("echo", {"x": "y" * 60_000})).whole()).status == 200


async def test_a_slow_body_is_given_up(front: Front, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_request, "BODY_SECONDS", 0.05)
    monkeypatch.setattr(http_request, "DISCARD_SECONDS", 0.05)
    peer = await front.greeted()
    await peer.write("POST", headers={"content-type": "application/json", "content-length": "100"})
    peer.writer.write(b'{"jsonrpc":"2.0",')
    answer = await (await Response(peer.reader, peer.writer).head()).whole()
    assert (answer.status, answer.headers["connection"]) == (408, "close")
    assert await Response(peer.reader, peer.writer).broken() == b""


async def test_a_body_that_breaks_off_is_not_taken_for_a_message(front: Front):
    peer = await front.greeted()
    before = len(front.script.asked)
    body = request("echo")
    await peer.write("POST", headers={"content-type": "application/json", "content-length": str(len(body) + 1)})
    peer.writer.write(body)
    await peer.writer.drain()
    await front.left(peer)
    assert len(front.script.asked) == before


async def test_a_client_that_leaves_while_its_body_is_refused_is_let_go(start: Started):
    front = await start(limits={"request_bytes": 65_536})
    peer = await front.greeted()
    await peer.write("POST", headers={"content-type": "application/json", "content-length": "1000000"})
    await front.left(peer)


async def test_a_slow_head_is_given_up(start: Started, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.05)
    front = await start()
    silent, slow = [await front.peer() for _ in range(2)]
    slow.writer.write(b"POST /mcp HTTP/1.1\r\nhost: loc")
    for peer in (silent, slow):
        assert await Response(peer.reader, peer.writer).broken() == b""
    kept = await front.peer()
    await kept.greet()
    kept.writer.write(b"POST /mcp HTTP/1.1\r\nhost: loc")
    assert await Response(kept.reader, kept.writer).broken() == b""


@pytest.mark.parametrize("endless", [b"x-a: " + b"y" * 70_000, b"x: y\r\n" * 20_000, b"x" * 70_000 + b": 1"])
async def test_an_endless_head_is_refused(front: Front, endless: bytes):
    peer = await front.peer()
    peer.writer.write(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\n" + endless + b"\r\n\r\n")
    assert b"400 Bad Request" in await Response(peer.reader, peer.writer).broken()


@pytest.mark.parametrize(
    "head",
    [
        b"POST /mcp HTTP/1.1\r\nhost: evil.example\r\nhost: localhost",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nHost: localhost",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\norigin: https://evil.example\r\norigin: http://localhost",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer a\r\nauthorization: Bearer b",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-session-id: a\r\nmcp-session-id: b",
        b"POST /mcp HTTP/1.0\r\nhost: localhost\r\ntransfer-encoding: chunked",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: gzip, chunked",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked",
        b"POST http://evil.example/mcp HTTP/1.1\r\nhost: localhost",
        b"POST http://localhost@evil.example/mcp HTTP/1.1\r\nhost: localhost",
        b"OPTIONS * HTTP/1.1\r\nhost: localhost",
    ],
)
async def test_an_ambiguous_head_is_refused(front: Front, head: bytes):
    peer = await front.peer()
    peer.writer.write(head + b"\r\n\r\n")
    assert b"400 Bad Request" in await Response(peer.reader, peer.writer).broken()
    assert front.inside.talks == []


async def test_a_target_with_the_name_of_this_host_passes(front: Front):
    peer = await front.peer()
    peer.writer.write(b"GET http://Localhost/nothing?at=/ HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert (await (await Response(peer.reader, peer.writer).head()).whole()).status == 404


async def test_trailers_of_a_body_change_nothing(front: Front):
    peer = await front.peer()
    head = b"POST /mcp HTTP/1.1\r\nhost: evil.example\r\ntransfer-encoding: chunked\r\n\r\n"
    peer.writer.write(head + b"2\r\n{}\r\n0\r\nhost: localhost\r\n\r\n")  # one segment: read before it is answered
    assert (await (await Response(peer.reader, peer.writer).head()).whole()).status == 421


async def test_an_endless_url_is_refused(front: Front):
    peer = await front.peer()
    peer.writer.write(b"POST /" + b"x" * 70_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert b"400 Bad Request" in await Response(peer.reader, peer.writer).broken()


@pytest.mark.parametrize("noise", [b"\x16\x03\x01\x02\x00\x01\x00", b"hello\r\n\r\n", b"\0" * 100])
async def test_what_is_no_http_is_refused(front: Front, noise: bytes):
    peer = await front.peer()
    peer.writer.write(noise)
    assert b"400 Bad Request" in await Response(peer.reader, peer.writer).broken()
