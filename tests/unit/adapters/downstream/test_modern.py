"""Requests of the modern era over HTTP."""

import pytest

from riglm.domain import jsonrpc
from tests.unit.adapters.downstream.conftest import Front
from tests.unit.adapters.downstream.peer import META, Response, request

MODERN = {"mcp-protocol-version": "2026-07-28"}


@pytest.mark.parametrize(("method", "status", "code"), [("refuse", 400, -32602), ("unknown", 404, -32601)])
async def test_an_error_has_the_status_that_goes_with_it(front: Front, method: str, status: int, code: int):
    peer = await front.peer()
    answer = await (await peer.ask_modern(method)).whole()
    assert (answer.status, answer.message["error"]["code"]) == (status, code)


async def test_a_failure_after_the_answer_began_gives_the_request_up_and_breaks_the_connection(front: Front):
    peer = await front.peer()
    await peer.write("POST", request("hold", {"_meta": META}), headers={**MODERN, "mcp-method": "hold"})
    asked = await front.script.held()
    asked.say()
    response = await Response(peer.reader, peer.writer).head()
    await response.event()
    asked.sink._events._wake.set_exception(RuntimeError("as the test wants"))  # type: ignore[attr-defined]
    assert await response.broken() == b""
    assert front.script.cancelled == [asked]


async def test_a_notification_of_an_unknown_revision_is_refused(front: Front):
    peer = await front.peer()
    body = b'{"jsonrpc":"2.0","method":"notifications/vendor"}'
    answer = await (await peer.send("POST", body, headers={"mcp-protocol-version": "2099-01-01"})).whole()
    assert (answer.status, answer.message["error"]["code"]) == (400, jsonrpc.UNSUPPORTED_PROTOCOL_VERSION)


@pytest.mark.parametrize(
    ("meta", "headers", "code"),
    [
        (None, {}, jsonrpc.INVALID_PARAMS),
        ({key: META[key] for key in list(META)[:1]}, {}, jsonrpc.INVALID_PARAMS),
        (META, {"mcp-method": None}, jsonrpc.HEADER_MISMATCH),
        (META, {"mcp-method": "other"}, jsonrpc.HEADER_MISMATCH),
        (META, {"mcp-name": "other"}, jsonrpc.HEADER_MISMATCH),
        (META, {"mcp-name": None}, jsonrpc.HEADER_MISMATCH),
        (META, {"mcp-name": "=?base64?\xe9?="}, jsonrpc.HEADER_MISMATCH),
        (META, {"mcp-protocol-version": None}, jsonrpc.HEADER_MISMATCH),
        (META, {"mcp-protocol-version": "2025-11-25"}, jsonrpc.HEADER_MISMATCH),
        (META, {"mcp-param-region": "eu"}, jsonrpc.HEADER_MISMATCH),
        ({**META, next(iter(META)): 5}, {}, jsonrpc.HEADER_MISMATCH),
    ],
)
async def test_headers_that_disagree_with_the_body_are_refused(
    front: Front, meta: object, headers: dict[str, str | None], code: int
):
    front.inside.modern.schema = b'{"properties":{"region":{"type":"string","x-mcp-header":"Region"}}}'
    peer = await front.peer()
    body = request("tools/call", {"name": "t", "arguments": {}, **({"_meta": meta} if meta is not None else {})})
    own = {**MODERN, "mcp-method": "tools/call", "mcp-name": "t", **headers}
    answer = await (await peer.send("POST", body, headers=own)).whole()
    assert (answer.status, answer.message["error"]["code"], answer.message["id"]) == (400, code, 1)
    assert front.script.asked == []


@pytest.mark.parametrize("name", ["mcp-method", "mcp-name", "mcp-protocol-version", "mcp-param-x"])
async def test_a_repeated_routing_header_is_refused(front: Front, name: str):
    peer = await front.peer()
    head = f"POST /mcp HTTP/1.1\r\nhost: {peer.host}\r\naccept: */*\r\ncontent-type: application/json\r\n"
    own = {**MODERN, "mcp-method": "tools/call", "mcp-name": "t", "mcp-param-x": "1"}
    lines = [*own.items(), (name, own[name])]
    body = request("tools/call", {"name": "t", "_meta": META})
    head += "".join(f"{key}: {value}\r\n" for key, value in lines) + f"content-length: {len(body)}\r\n\r\n"
    peer.writer.write(head.encode() + body)
    answer = await (await Response(peer.reader, peer.writer).head()).whole()
    assert (answer.status, answer.message["error"]["code"]) == (400, jsonrpc.HEADER_MISMATCH)
    assert name in answer.message["error"]["message"]


@pytest.mark.parametrize("method", ["initialize", "ping", "logging/setLevel"])
async def test_methods_that_the_era_took_away_are_not_found(front: Front, method: str):
    peer = await front.peer()
    answer = await (await peer.ask_modern(method)).whole()
    assert (answer.status, answer.message["error"]["code"]) == (404, jsonrpc.METHOD_NOT_FOUND)
    assert front.script.asked == []
