"""A conversation that finds out that its upstream only speaks the modern era, and goes on over a bridge."""

import pytest

from riglm.application.proxy.proxy_service import ProxyService
from riglm.domain import jsonrpc
from riglm.domain.invocation import ErrorKind
from riglm.domain.session import Transport
from riglm.ports.downstream import Caller
from tests.unit.application.fakes import Channel, Client, Server, World, settle

INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}'
)
UNSUPPORTED = b'{"code":-32022,"message":"n\\u006f","data":{"supported":["2026-07-28"]}}'
DISCOVERED = b'{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}'
GREETED = (
    b'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'
    b'"serverInfo":{"name":"far","version":"unknown"}}}'
)


class Stage(World):
    """Conversations with one upstream."""

    def __init__(self, **eras):
        super().__init__()
        self.upstream = Server("far", **eras)
        self.conversation = self.converse()

    def converse(self):
        return ProxyService(self.parts, [self.upstream]).connect(Caller(transport=Transport.STDIO), Channel())

    def open(self):
        sink = Client()
        self.conversation.receive(jsonrpc.decode(INITIALIZE), sink)
        return sink

    @property
    def near(self):
        return self.upstream.links[-1]

    @property
    def far(self):
        return self.upstream.stateless(None)


async def test_an_error_of_an_upstream_that_is_not_modern_passes():
    stage = Stage()
    sink = stage.open()
    await settle()
    stage.near.asked[0].refused(b'{"code":-32602,"message":"n\\u006f","data":{"n":1.0}}')
    await settle()
    stage.far.asked[0].refused(b'{"code":-32601,"message":"Method not found"}')
    await settle()
    assert sink.outcome == b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"n\\u006f","data":{"n":1.0}}}'
    assert not stage.near.closed


@pytest.mark.parametrize("kind", [ErrorKind.UNAVAILABLE, ErrorKind.TIMEOUT])
async def test_silence_is_no_reason_to_look_for_the_modern_era(kind):
    stage = Stage(modern=True)
    sink = stage.open()
    await settle()
    stage.near.asked[0].reply.failed(kind, "gone")
    await settle()
    assert jsonrpc.members(jsonrpc.decode(sink.outcome).error)["message"] == jsonrpc.Raw(b'"gone"')
    assert stage.far.asked == []


async def test_an_answer_that_is_no_message_is_a_reason_to_look_for_the_modern_era():
    stage = Stage()
    sink = stage.open()
    await settle()
    stage.near.asked[0].reply.failed(ErrorKind.PROTOCOL, "answered HTTP 405")
    await settle()
    stage.far.asked[0].result(DISCOVERED)
    await settle()
    stage.far.asked[1].result(DISCOVERED)
    await settle()
    assert sink.outcome == GREETED


async def test_a_probe_that_gets_no_answer_leaves_the_question_open():
    stage = Stage()
    sink = stage.open()
    await settle()
    stage.near.asked[0].refused(UNSUPPORTED)
    await settle()
    stage.far.asked[0].reply.failed(ErrorKind.TIMEOUT, "silent")
    await settle()
    assert sink.outcome == b'{"jsonrpc":"2.0","id":1,"error":%b}' % UNSUPPORTED
    assert stage.upstream.eras == {}


async def test_a_refusal_for_another_reason_does_not_send_the_next_client_over_the_bridge():
    stage = Stage(modern=True)
    stage.open()
    await settle()
    stage.near.asked[0].refused(b'{"code":-32602,"message":"no"}')
    await settle()
    stage.conversation = stage.converse()
    stage.open()
    assert len(stage.upstream.links) == 2


async def test_when_the_bridge_is_refused_the_next_client_tries_the_handshake_again():
    stage = Stage(handshake=False)
    sink = stage.open()
    await settle()
    assert stage.upstream.links == []
    stage.far.asked[0].refused(b'{"code":-32601,"message":"no"}')
    await settle()
    assert sink.outcome == b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}'
    stage.conversation = stage.converse()
    stage.open()
    assert len(stage.upstream.links) == 1
