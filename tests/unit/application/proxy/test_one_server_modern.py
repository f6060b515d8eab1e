"""Requests of the modern era in front of one server, whose era is found out once."""

import pytest

from riglm.application.proxy.era_negotiation import EraProbe, is_modern
from riglm.application.proxy.proxy_service import ProxyService
from riglm.domain import jsonrpc, request_params
from riglm.domain.invocation import ErrorKind
from riglm.domain.session import ProtocolEra, Transport
from riglm.ports.downstream import Caller
from tests.unit.application.fakes import Server, Sink, World, asks, settle

META = (
    b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    b'"io.modelcontextprotocol/clientInfo":{"name":"c"},"io.modelcontextprotocol/clientCapabilities":{}}'
)
MODERN = b'{"supportedVersions":["2026-07-28"],"resultType":"complete"}'
REFUSED = (
    b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32022,"message":"Unsupported protocol version: open with initialize",'
    b'"data":{"supported":["2024-11-05","2025-03-26","2025-06-18","2025-11-25"],"requested":"2026-07-28"}}}'
)


CALLER = Caller(transport=Transport.HTTP)


class Stage(World):
    """Clients in front of one server."""

    def __init__(self, modern=None, **answers):
        super().__init__()
        self.server = Server("up", answers, **({} if modern is None else {"modern": modern}))
        self.service = ProxyService(self.parts, [self.server])

    def send(self, number, method, params=b"", principal="anna"):
        message = asks(number, method, b"{%b%b}" % (params + b"," if params else b"", META))
        sink = Sink()
        caller = Caller(transport=Transport.HTTP, principal=principal)
        return sink, self.service.receive_modern(
            message, request_params.envelope(message), sink, caller, {b"mcp-name": b"x"}
        )

    @property
    def link(self):
        return self.server.shared


@pytest.mark.parametrize(
    ("line", "modern"),
    [
        (b'{"id":1,"result":{"supportedVersions":["2026-07-28"]}}', True),
        (b'{"id":1,"result":{"supportedVersions":["2025-11-25","2099-01-01"]}}', True),
        (b'{"id":1,"result":{"supportedVersions":["2025-11-25"]}}', False),
        (b'{"id":1,"result":{"supportedVersions":3}}', False),
        (b'{"id":1,"result":{}}', False),
        (b'{"id":1,"error":{"code":-32020}}', True),
        (b'{"id":1,"error":{"code":-32021}}', True),
        (b'{"id":1,"error":{"code":-32022,"data":{"supported":["2026-07-28"]}}}', True),
        (b'{"id":1,"error":{"code":-32022,"data":{"supported":["2025-11-25"]}}}', False),
        (b'{"id":1,"error":{"code":-32022}}', False),
        (b'{"id":1,"error":{"code":-32601}}', False),
        (b'{"id":1,"error":{"code":-32603}}', None),
    ],
)
async def test_an_answer_to_discovery_shows_the_era_or_nothing(line, modern):
    assert is_modern(jsonrpc.decode(line)) is modern


# --- a server of the era ---


async def test_schemas_are_known_by_tool():
    stage = Stage(modern=True, **{"tools/list": b'{"tools":[{"name":"t","inputSchema":{"x": 1}},{"name":"u"}]}'})
    stage.send(1, "tools/list")
    await settle()
    assert [stage.service.input_schema(name, CALLER) for name in "tuv"] == [b'{"x": 1}', None, None]


async def test_a_cancellation_of_one_client_reaches_the_server_by_no_number():
    stage = Stage(modern=True)
    stage.service.notify_modern(jsonrpc.notification("notifications/cancelled", b'{"requestId":7}'), CALLER)
    stage.service.notify_modern(jsonrpc.notification("vendor/told"), CALLER)
    assert stage.link.sent == [b'{"jsonrpc":"2.0","method":"vendor/told"}']


async def test_riglm_refuses_requests_of_the_server_in_place_of_a_client():
    stage = Stage(modern=True)
    stage.send(1, "tools/list")
    stage.link.says(b'{"id":1,"method":"roots/list"}')
    (answer,) = stage.link.sent
    assert jsonrpc.error_code(jsonrpc.decode(answer)) == jsonrpc.METHOD_NOT_FOUND


# --- a server of unknown era ---


async def test_a_server_of_the_handshake_is_known_after_one_question():
    stage = Stage(**{"server/discover": lambda asked: asked.error(-32601)})
    sinks = [stage.send(number, "tools/list")[0] for number in range(3)]
    await settle()
    assert [sink.got for sink in sinks] == [[("replied", REFUSED % number, 400)] for number in range(3)]
    assert stage.link.methods == ["server/discover"]
    assert stage.server.eras == {ProtocolEra.MODERN: False}


async def test_a_client_s_own_discovery_tells_the_era_and_passes_as_it_came():
    stage = Stage(**{"server/discover": MODERN})
    sink, _ = stage.send(1, "server/discover")
    await settle()
    assert bytes(sink.answers[0].result) == MODERN
    assert stage.server.eras == {ProtocolEra.MODERN: True}
    assert len(stage.link.asked) == 1


async def test_a_discovery_whose_answer_tells_nothing_is_judged_by_a_question_of_our_own():
    stage = Stage()
    sinks = [stage.send(number, "server/discover")[0] for number in (1, 2)]
    await settle()
    for asked in stage.link.asked[:2]:
        asked.error(-32603, "confused")
        await settle()
    stage.link.asked[2].result(MODERN)
    await settle()
    assert [jsonrpc.error_code(sink.answers[0]) for sink in sinks] == [-32603, -32603]
    assert len(stage.link.asked) == 3


@pytest.mark.parametrize("first", ["server/discover", "tools/list"])
async def test_the_revisions_that_a_server_of_the_handshake_names_are_those_that_clients_are_told(first):
    data = b'"data":{"supported":["2025-06-18","2025-11-25"],"requested":"2026-07-28"}'
    refused = b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32022,"message":"no",' + data + b"}}"
    stage = Stage(**{"server/discover": lambda asked: asked.reply.replied(jsonrpc.decode(refused % asked.message.id))})
    for number, method in enumerate((first, "tools/list")):
        sink, _ = stage.send(number, method)
        await settle()
        error = jsonrpc.plain(sink.answers[0].error)
        assert error["data"] == {"supported": ["2025-06-18", "2025-11-25"], "requested": "2026-07-28"}
    assert stage.link.methods == ["server/discover"]


async def test_a_discovery_that_is_given_up_while_it_is_judged_is_answered_no_more():
    stage = Stage()
    sink, in_flight = stage.send(1, "server/discover")
    await settle()
    stage.link.asked[0].error(-32603)
    await settle()
    in_flight.cancel()
    stage.link.asked[1].error(-32601)
    await settle()
    assert sink.got == []


async def test_a_server_that_is_down_has_no_era():
    stage = Stage(**{"server/discover": lambda asked: asked.dies("up is down")})
    listing, _ = stage.send(1, "tools/list")
    await settle()
    assert stage.link.methods == ["server/discover", "tools/list"]
    stage.link.asked[-1].dies("up is down")
    await settle()
    discovery, _ = stage.send(2, "server/discover")
    await settle()
    for sink in (listing, discovery):
        assert jsonrpc.plain(sink.answers[0].error) == {"code": -32000, "message": "up is down"}
    assert stage.server.eras == {}


@pytest.mark.parametrize("method", ["tools/list", "server/discover"])
async def test_a_silent_server_is_asked_a_few_times_and_then_only_for_a_request(method):
    stage = Stage()
    stage.send(1, method)
    await settle()
    for number in range(2, 9):
        stage.link.asked[-1].reply.failed(ErrorKind.TIMEOUT, "no answer")
        await settle()
        if number < 8:
            sink, _ = stage.send(number, "tools/list")
            await settle()
            assert "has not answered yet" in jsonrpc.plain(sink.answers[0].error)["message"]
    assert stage.link.methods == ["server/discover"] * 7
    assert stage.server.eras == {}
    stage.server.answers["server/discover"] = MODERN
    stage.send(9, "tools/list")
    await settle()
    assert stage.link.methods == [*["server/discover"] * 8, "tools/list"]


@pytest.mark.parametrize("method", ["tools/list", "server/discover"])
async def test_a_server_that_answers_late_serves_the_next_request(method):
    stage = Stage()
    first, _ = stage.send(1, method)
    await settle()
    stage.link.asked[-1].reply.failed(ErrorKind.TIMEOUT, "no answer")
    await settle()
    assert jsonrpc.error_code(first.answers[0]) == jsonrpc.UNSUPPORTED_PROTOCOL_VERSION
    stage.link.asked[-1].result(MODERN)
    await settle()
    stage.send(2, "tools/list")
    await settle()
    assert stage.link.methods == ["server/discover", "server/discover", "tools/list"]


async def test_silence_tells_nothing_to_who_can_wait():
    server = Server("up", {"server/discover": lambda asked: asked.reply.failed(ErrorKind.TIMEOUT, "no answer")})
    era_probe = EraProbe(server, server.stateless(None), silence_counts=False)
    assert [await era_probe.ask() for _ in range(2)] == [None, None]
    assert len(server.shared.asked) == 2
