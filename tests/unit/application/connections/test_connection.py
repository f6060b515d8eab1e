"""A client on one channel: the era is decided for each request by itself."""

import pytest

from riglm.application.aggregation.connection import MultiServerConnection
from riglm.application.aggregation.multi_server_modern import MultiServerModernHandler
from riglm.application.connections.single_server import DualEraRouter
from riglm.application.proxy import ProxyService
from riglm.domain import jsonrpc
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
        self.proxy = ProxyService(self.services, self.servers)
        self.sink, self.channel = Sink(), Channel()
        self.connection = self.proxy.connect(Caller(transport=Transport.STDIO), self.channel, self.sink)

    def send(self, line):
        self.connection.received(line)

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


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (b"{", b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,'),
        (b"[]", b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,'),
        (b'{"id":7,"method":7}', b'{"jsonrpc":"2.0","id":7,"error":{"code":-32600,'),
        (b'{"id":7,"method":"a","method":"b"}', b'{"jsonrpc":"2.0","id":7,"error":{"code":-32600,'),
    ],
)
async def test_what_is_no_message_is_answered_with_an_error_and_the_next_one_works(stage, line, answer):
    stage.send(line)
    ((_, told, *_),) = stage.sink.got
    assert told.startswith(answer)
    stage.send(modern(1))
    assert len(stage.modern.asked) == 1


async def test_each_request_goes_by_its_own_era(stage):
    stage.send(modern(1))
    stage.send(b'{"id":2,"method":"tools/list"}')
    stage.send(modern(3))
    assert [asked.message.id for asked in stage.modern.asked] == [b"1", b"3"]
    assert [asked.message.id for asked in stage.handshake.asked] == [b"2"]


async def test_after_its_handshake_the_client_listens(stage):
    stage.send(b'{"id":1,"method":"initialize","params":{}}')
    assert stage.handshake.listening == []
    stage.send(b'{"method":"notifications/initialized"}')
    assert stage.handshake.listening == [True]


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
    monkeypatch.setattr(stage.proxy, "converse", None)
    stage.send(b'{"id":2,"method":"tools/list"}')
    error = b'{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"Internal error in riglm: its log says more"}}'
    assert [each[1] for each in stage.sink.got] == [error]
    monkeypatch.setattr(stage.proxy.modern_for(Caller(transport=Transport.STDIO)), "handle_notification", None)
    stage.send(b'{"method":"vendor/told"}')
    assert len(stage.sink.got) == 1
    assert len(caplog.records) == 2


async def test_when_the_client_leaves_everything_is_given_up():
    stage = Stage()
    stage.send(modern(1))
    stage.send(b'{"id":2,"method":"tools/call","params":{"name":"t"}}')
    await stage.connection.close()
    assert stage.modern.cancelled == [(b"1", None)]
    assert stage.handshake.closed == 1
    for asked in (*stage.modern.asked, *stage.handshake.asked):
        asked.result()
    assert stage.sink.got == []


async def test_a_client_that_only_came_and_went_leaves_nothing(stage):
    await stage.connection.close()
    assert stage.servers[0].links == []
    assert stage.records.all == []


# --- the proxy as a whole ---


async def test_one_server_keeps_its_names_and_several_get_theirs():
    for names in (["up"], ["a", "b"]):
        answers = {"initialize": opened("tools"), "tools/list": tools("t")}
        stage = Stage(*(Server(name, answers, modern=True) for name in names))
        stage.send(b'{"id":1,"method":"initialize","params":{}}')
        stage.send(b'{"id":2,"method":"tools/list"}')
        stage.send(modern(3))
        await stage.sink.until(lambda stage=stage: len(stage.sink.answers) == 3)
        lists = [answer for answer in stage.sink.answers if answer.id != b"1"]
        expected = ["t"] if len(names) == 1 else ["a__t", "b__t"]
        for answer in lists:
            listed = jsonrpc.elements(jsonrpc.members(answer.result)["tools"])
            assert [jsonrpc.plain(tool)["name"] for tool in listed] == expected
        await stage.connection.close()
        await stage.proxy.close()
        assert [server.closed for server in stage.servers] == [1] * len(names)
        assert len(stage.sessions) == 0


async def test_a_server_that_cannot_be_closed_does_not_keep_the_others_open(caplog):
    stage = Stage(Server("a"), Server("b"))

    async def failing():
        raise OSError("stuck")

    stage.servers[0].close = failing
    await stage.proxy.close()
    assert stage.servers[1].closed == 1
    assert [(record.upstream, str(record.exc_info[1])) for record in caplog.records] == [("a", "stuck")]


async def test_sessions_are_swept_and_names_looked_at(stage):
    stage.proxy.sweep()
    await stage.proxy.check_names()
    assert isinstance(stage.connection, DualEraRouter)


def test_a_server_that_is_left_of_several_is_served_as_one_of_several(stage):
    proxy = ProxyService(stage.services, stage.servers, is_alone=False)
    caller = Caller(transport=Transport.STDIO)
    assert isinstance(proxy.modern_for(caller), MultiServerModernHandler)
    assert isinstance(proxy.converse(caller, stage.channel), MultiServerConnection)
