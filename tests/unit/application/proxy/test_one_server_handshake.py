"""A client of the handshake era in front of one server: everything passes as it came, and is noted on the way."""

import pytest

from riglm.application.proxy.proxy_service import ProxyService
from riglm.domain import jsonrpc
from riglm.domain.invocation import DiscoveryMethod, ErrorKind
from riglm.domain.session import Transport
from riglm.ports.downstream import Caller
from tests.unit.application.fakes import Channel, Server, Sink, World, asks, tools


class Stage(World):
    """A client in front of one server."""

    def __init__(self, **more):
        super().__init__(**more)
        self.server = Server("up")
        self.channel = Channel()
        self.conversation = ProxyService(self.parts, [self.server]).connect(
            Caller(transport=Transport.HTTP), self.channel
        )

    def send(self, line, **more):
        sink = Sink()
        self.conversation.receive(jsonrpc.decode(line), sink, **more)
        return sink

    def call(self, number, name=b"t", meta=b""):
        more = b',"_meta":%b' % meta if meta else b""
        return self.send(asks(number, "tools/call", b'{"name":"%b"%b}' % (name, more)).line)

    @property
    def link(self):
        return self.server.link


@pytest.fixture
def stage():
    return Stage()


async def test_a_tool_was_listed_if_this_client_was_shown_it():
    stage = Stage()
    other = ProxyService(stage.parts, [stage.server]).connect(Caller(transport=Transport.HTTP), Channel())
    other.receive(asks(1, "tools/list"), Sink())
    stage.link.asked[-1].result(tools("theirs"))
    stage.server.links.reverse()
    stage.call(1, b"theirs")
    stage.link.asked[-1].result()
    stage.send(asks(2, "tools/list").line)
    stage.link.asked[-1].result(tools("t", nextCursor="2"))
    stage.send(asks(3, "tools/list", b'{"cursor":"2"}').line)
    stage.link.asked[-1].result(tools("u"))
    for number, name in enumerate((b"t", b"u", b"theirs"), 4):
        stage.call(number, name)
        stage.link.asked[-1].result()
    assert [(name, found) for name, _, _, found in stage.records.calls] == [
        ("theirs", DiscoveryMethod.NAMED),
        ("t", DiscoveryMethod.LISTED),
        ("u", DiscoveryMethod.LISTED),
        ("theirs", DiscoveryMethod.NAMED),
    ]


async def test_a_name_that_the_server_does_not_list_is_a_tool_only_if_it_runs(stage):
    """Servers made with the SDK answer `isError` to whatever name they do not know."""
    stage.call(1, b"before_any_list")
    stage.link.asked[-1].result(b'{"isError":true}')
    stage.send(asks(2, "tools/list").line)
    stage.link.asked[-1].result(tools("t"))
    for number, (name, answer) in enumerate([(b"t", True), (b"made_up", True), (b"secret", False)], 3):
        stage.call(number, name)
        stage.link.asked[-1].result(b'{"isError":%b}' % jsonrpc.encode(answer))
    assert [(name, kind) for name, _, kind, _ in stage.records.calls] == [
        ("before_any_list", ErrorKind.TOOL),
        ("t", ErrorKind.TOOL),
        ("made_up", ErrorKind.PROTOCOL),
        ("secret", None),
    ]


async def test_an_id_in_use_is_refused_and_the_first_request_keeps_it(stage):
    first, second = stage.call(7), stage.call(7)
    refusal = b'{"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"Invalid request: the id is in use"}}'
    assert second.got == [("replied", refusal, 400)]
    stage.link.asked[0].result()
    assert len(stage.link.asked) == len(first.got) == 1
    third = stage.call(7)
    stage.link.asked[1].result()
    assert len(third.got) == 1


async def test_a_request_of_the_server_goes_over_the_latest_request_that_can_carry_it(stage):
    stage.channel.is_open = False
    question = b'{"id":1,"method":"roots/list"}'
    stage.send(asks(1, "resources/list").line)
    stage.link.asked[0].result()
    stage.link.says(question)
    first, second = (stage.call(number) for number in (2, 3))
    stage.link.says(question)
    assert [sink.notes for sink in (first, second)] == [[], [question]]
    stage.channel.is_open = True
    stage.conversation.listen(listening=True)
    assert stage.channel.told == [question]
