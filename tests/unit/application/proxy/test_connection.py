"""A client on one channel: the era is decided for each request by itself."""

import pytest

from riglm.application.proxy.proxy_service import ProxyService
from riglm.domain.session import Transport
from riglm.ports.downstream import Caller
from tests.unit.application.fakes import Channel, Server, Sink, World, opened, tools

META = (
    b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}'
)


class Stage(World):
    """A client on one channel, in front of one server that speaks both eras."""

    def __init__(self, *servers):
        super().__init__()
        self.servers = servers or (Server("up", {"initialize": opened("tools")}, modern=True),)
        self.proxy = ProxyService(self.parts, self.servers)
        self.sink, self.channel = Sink(), Channel()
        self.connection = self.proxy.connect(Caller(transport=Transport.STDIO), self.channel, self.sink)

    def send(self, line):
        self.connection.receive_line(line)

    @property
    def handshake(self):
        return self.servers[0].links[-1]

    @property
    def modern(self):
        return self.servers[0].shared


def modern(number, method="tools/list"):
    return b'{"id":%d,"method":"%b","params":{%b}}' % (number, method.encode(), META)


@pytest.fixture
def stage():
    return Stage()


async def test_each_request_goes_by_its_own_era(stage):
    stage.send(modern(1))
    stage.send(b'{"id":2,"method":"tools/list"}')
    stage.send(modern(3))
    assert [asked.message.id for asked in stage.modern.asked] == [b"1", b"3"]
    assert [asked.message.id for asked in stage.handshake.asked] == [b"2"]


async def test_a_cancellation_finds_its_request_in_either_era(stage):
    stage.send(modern(1))
    stage.send(b'{"id":2,"method":"tools/list"}')
    for number in (1, 2, 1):
        stage.send(b'{"method":"notifications/cancelled","params":{"requestId":%d}}' % number)
    assert [cancelled for cancelled, _ in stage.modern.cancelled] == [b"1"]
    assert [cancelled for cancelled, _ in stage.handshake.cancelled] == [b"2"]
    assert stage.modern.sent == []
    for asked in (*stage.modern.asked, *stage.handshake.asked):
        asked.result(tools())
    assert stage.sink.got == []


async def test_before_any_handshake_notifications_are_the_modern_era_s(stage):
    stage.send(b'{"method":"vendor/told"}')
    stage.send(b'{"method":"notifications/cancelled","params":{"requestId":9}}')
    assert stage.modern.sent == [b'{"method":"vendor/told"}']
    assert stage.servers[0].links == []


async def test_a_modern_id_in_use_is_refused_and_the_first_request_keeps_it(stage):
    stage.send(modern(1))
    stage.send(modern(1, "tools/call"))
    refusal = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Invalid request: the id is in use"}}'
    assert [each[1] for each in stage.sink.got] == [refusal]
    stage.modern.asked[0].result(tools())
    stage.send(modern(1))
    assert len(stage.modern.asked) == 2


async def test_what_a_client_is_owed_is_answered_or_given_up(stage):
    assert not stage.connection.in_flight
    stage.send(modern(1))
    stage.send(b'{"id":2,"method":"tools/list"}')
    assert stage.connection.in_flight
    stage.modern.asked[0].result(tools())
    assert stage.connection.in_flight
    stage.send(b'{"method":"notifications/cancelled","params":{"requestId":2}}')
    assert not stage.connection.in_flight
    stage.send(modern(3, "subscriptions/listen"))
    assert not stage.connection.in_flight


async def test_a_failure_inside_is_an_error_of_the_request_and_of_nothing_else(stage, monkeypatch, caplog):
    monkeypatch.setattr(stage.proxy, "handshake_upstreams", None)
    stage.send(b'{"id":2,"method":"tools/list"}')
    error = b'{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"Internal error in riglm: its log says more"}}'
    assert [each[1] for each in stage.sink.got] == [error]
    monkeypatch.setattr(stage.proxy, "notify_modern", None)
    stage.send(b'{"method":"vendor/told"}')
    assert len(stage.sink.got) == 1
    assert len(caplog.records) == 2


# --- the proxy as a whole ---


async def test_a_server_that_cannot_be_closed_does_not_keep_the_others_open(caplog):
    stage = Stage(Server("a"), Server("b"))

    async def failing():
        raise OSError("stuck")

    stage.servers[0].close = failing
    await stage.proxy.close()
    assert stage.servers[1].closed == 1
    assert [(record.upstream, str(record.exc_info[1])) for record in caplog.records] == [("a", "stuck")]


async def test_a_server_that_is_left_of_several_is_served_as_one_of_several(stage):
    stage.proxy = ProxyService(stage.parts, stage.servers, is_alone=False)
    assert stage.proxy.modern_upstreams(Caller(transport=Transport.STDIO)).only is None
