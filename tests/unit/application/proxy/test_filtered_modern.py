"""Requests of the modern era that are shown what a filter chooses."""

import pytest

from riglm.application.proxy.proxy_service import ProxyService
from riglm.domain import jsonrpc, protocol, request_params
from riglm.domain.exposure import Surface
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.session import Transport
from riglm.ports.downstream import Caller
from tests.unit.application.fakes import Server, Sink, settle, tools
from tests.unit.application.proxy.scripted import ShowingWorld
from tests.unit.application.proxy.test_filtered_handshake import names_of

CALLER = Caller(transport=Transport.HTTP, address="127.0.0.1")


class Stage(ShowingWorld):
    """Clients of the modern era, the filter, and one server."""

    def __init__(self):
        super().__init__()
        self.server = Server("up", modern=True)
        self.filter.kind = Surface.STABLE
        self.modern = ProxyService(self.parts, [self.server])
        self.in_flight = None

    def send(self, number, method, params=b"{}", client="c", headers=None):
        meta = {
            protocol.META_VERSION: "2026-07-28",
            protocol.META_CLIENT: {"name": client},
            protocol.META_CAPABILITIES: {},
            "progressToken": "p",
        }
        whole = jsonrpc.with_member(params, ("_meta",), jsonrpc.encode(meta))
        return self.take(jsonrpc.decode(jsonrpc.request(jsonrpc.encode(number), method, whole).line), headers)

    def take(self, message, headers=None):
        envelope = request_params.envelope(message)
        sink = Sink()
        self.in_flight = self.modern.receive_modern(message, envelope, sink, CALLER, headers or {})
        return sink

    def call(self, number, name, arguments=b"{}", **more):
        params = b'{"name":%b,"arguments":%b}' % (jsonrpc.encode(name), arguments)
        return self.send(number, "tools/call", params, **more)

    @property
    def link(self):
        return self.server.shared


@pytest.fixture
async def stage():
    made = Stage()
    yield made
    await made.modern.close()


def listed(*names, **more):
    return tools(*names, resultType="complete", **more)


async def test_a_chosen_list_is_private_and_no_fresher_than_it_is(stage):
    stage.filter.shown = {"a"}
    for theirs, own, told in ((5000, 60.0, 5000), (5000, 1.5, 1500), (0, 60.0, 0), ("x", 60.0, 0), (5000, -1.0, 0)):
        stage.filter.fresh = own
        sink = stage.send(1, "tools/list")
        await settle()
        stage.link.asked[-1].result(listed("a", "b", ttlMs=theirs, cacheScope="public", x=1))
        await settle()
        result = jsonrpc.plain((await sink.answer()).result)
        assert [tool["name"] for tool in result.pop("tools")] == ["a", "search_available_tools"]
        assert result == {"resultType": "complete", "ttlMs": told, "cacheScope": "private", "x": 1}


async def test_a_refusal_of_the_era_passes_with_its_status():
    stage = Stage()
    stage.server.eras.clear()
    sink = stage.send(1, "tools/list")
    await settle()
    stage.link.asked[0].error(-32601, "what?")
    await settle()
    ((_, line, status),) = sink.got
    assert (jsonrpc.error_code(jsonrpc.decode(line)), status) == (jsonrpc.UNSUPPORTED_PROTOCOL_VERSION, 400)


async def test_pages_are_asked_for_in_the_client_s_envelope_and_with_its_headers(stage):
    stage.filter.shown = {"b"}
    headers = {b"mcp-method": b"tools/list"}
    sink = stage.send(1, "tools/list", headers=headers)
    await settle()
    stage.link.asked[0].result(listed("a", nextCursor="n", ttlMs=9000))
    await settle()
    second = stage.link.asked[1]
    await settle()
    assert request_params.envelope(second.message).client.name == "c"
    second.result(listed("b", ttlMs=2000))
    answer = await sink.answer()
    assert names_of(answer) == ["b", "search_available_tools"]
    assert jsonrpc.plain(answer.result)["ttlMs"] == 2000


async def test_the_schema_of_a_denied_tool_is_not_told(stage):
    stage.send(1, "tools/list")
    await settle()
    schema = {"type": "object", "properties": {"secret": {}}}
    raw = jsonrpc.encode({"tools": [{"name": "delete", "inputSchema": schema}], "resultType": "complete"})
    stage.link.asked[0].result(raw)
    await settle()
    assert jsonrpc.plain(stage.modern.input_schema("delete", CALLER)) == schema
    stage.filter.denied = {"delete"}
    assert stage.modern.input_schema("delete", CALLER) is None


async def test_call_tool_has_the_headers_of_the_call_that_it_stands_for(stage):
    sink = stage.call("x", "call_tool", b'{"name":"far","arguments":{"n":1.50}}', headers={b"mcp-name": b"call_tool"})
    await settle()
    asked = await stage.link.next("tools/call")
    assert asked.reply.headers == {}
    assert asked.message.id == b'"x"'
    params = jsonrpc.members(asked.message.params)
    assert (bytes(params["name"]), bytes(params["arguments"])) == (b'"far"', b'{"n":1.50}')
    assert b'"progressToken":"p"' in bytes(params["_meta"])
    asked.says(b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p"}}')
    raw = b'{"resultType":"input_required","requestState":"s","inputRequests":{}}'
    asked.result(raw)
    await settle()
    assert [got[0] for got in sink.got] == ["related", "replied"]
    assert bytes(sink.answers[0].result) == raw
    assert stage.records.calls == [("far", "up", None, DiscoveryMethod.NAMED)]
    assert stage.in_flight.done


async def test_the_answer_to_what_was_required_reaches_the_same_tool(stage):
    stage.send(
        2,
        "tools/call",
        b'{"name":"call_tool","arguments":{"name":"far"},"requestState":"s","inputResponses":{"q":1.0}}',
    )
    params = jsonrpc.members((await stage.link.next("tools/call")).message.params)
    assert bytes(params["inputResponses"]) == b'{"q":1.0}'
    assert bytes(params["requestState"]) == b'"s"'
    assert bytes(params["name"]) == b'"far"'


@pytest.mark.parametrize("ttl", [b"1" + b"0" * 400, b"1e400", b"-1"])
async def test_denied_tools_are_in_no_list_whatever_a_server_says_of_its_age(stage, ttl):
    stage.filter.shown = {"a"}
    stage.filter.denied = {"b"}
    sink = stage.send(1, "tools/list")
    await settle()
    stage.link.asked[-1].result(b'{"tools":[{"name":"a"},{"name":"b"}],"resultType":"complete","ttlMs":%b}' % ttl)
    answer = await sink.answer()
    assert b'"b"' not in bytes(answer.line)
    assert answer.result


async def test_a_list_that_cannot_be_written_has_no_denied_tool(stage, monkeypatch):
    stage.filter.denied = {"b"}
    [stages] = [each for each in stage.modern._stages if type(each).__name__ == "ListStage"]

    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(stages, "_body", fail)
    sink = stage.send(1, "tools/list")
    await settle()
    stage.link.asked[-1].result(listed("a", "b"))
    answer = await sink.answer()
    assert b'"b"' not in bytes(answer.line)
