"""A client of the handshake era in front of one server: everything passes as it came, and is noted on the way."""

import pytest

from riglm.application.connections.single_server import SingleServerConnection
from riglm.domain import jsonrpc
from riglm.domain.invocation import DiscoveryMethod, ErrorKind
from riglm.domain.session import Transport
from riglm.ports.downstream import Caller
from riglm.ports.upstream import EventPosition, ResumedStreamHandler
from tests.unit.application.fakes import Channel, Server, Sink, World, asks, tools

MARK = EventPosition(b"e1", 100)


class Stage(World):
    """A client in front of one server."""

    def __init__(self, **more):
        super().__init__(**more)
        self.server = Server("up")
        self.channel = Channel()
        self.conversation = SingleServerConnection(
            self.services, self.server, Caller(transport=Transport.HTTP), self.channel
        )

    def send(self, line, **more):
        sink = Sink()
        self.conversation.received(jsonrpc.decode(line), sink, **more)
        return sink

    def call(self, number, name=b"t", meta=b""):
        more = b',"_meta":%b' % meta if meta else b""
        return self.send(asks(number, "tools/call", b'{"name":"%b"%b}' % (name, more)).line, resumable=True)

    @property
    def link(self):
        return self.server.link


class Rest(ResumedStreamHandler):
    """Keeps the rest of a stream."""

    def __init__(self):
        self.got = []

    def continued(self, message, event=None):
        self.got.append((message.line, event))

    def primed(self, event):
        self.got.append(event)

    def ended(self):
        self.got.append("ended")


@pytest.fixture
def stage():
    return Stage()


async def test_a_tool_was_listed_if_this_client_was_shown_it():
    stage = Stage()
    other = SingleServerConnection(stage.services, stage.server, Caller(transport=Transport.HTTP), Channel())
    other.received(asks(1, "tools/list"), Sink())
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
    assert second.got == [("replied", refusal, 400, None)]
    stage.link.asked[0].result()
    assert len(stage.link.asked) == len(first.got) == 1
    third = stage.call(7)
    stage.link.asked[1].result()
    assert len(third.got) == 1


async def test_a_question_of_the_server_rides_on_the_latest_request_that_can_carry_it(stage):
    stage.channel.is_open = False
    question = b'{"id":1,"method":"roots/list"}'
    stage.link.says(question)
    first, second, third = (stage.call(number) for number in (1, 2, 3))
    stage.link.asked[2].reply.interrupted()
    stage.link.says(question)
    assert [sink.notes for sink in (first, second, third)] == [[], [question], []]
    stage.channel.is_open = True
    stage.conversation.listen(listening=True)
    assert stage.channel.told == [question]


async def test_the_rest_of_a_lost_stream_ends_the_request_that_it_belongs_to(stage):
    sink, rest = stage.call(7), Rest()
    stage.link.asked[0].reply.interrupted()
    streams = []
    stage.link.resume = lambda last, stream: streams.append((last, stream))
    stage.conversation.resume(b"e1", rest)
    ((last, stream),) = streams
    note, answer = b'{"method":"n"}', b'{"id":7,"result":{"isError":true}}'
    stream.continued(jsonrpc.decode(note), MARK)
    stream.primed(MARK)
    stream.continued(jsonrpc.decode(b'{"id":99,"result":{}}'))
    stream.continued(jsonrpc.decode(answer))
    stream.ended()
    assert last == b"e1"
    assert rest.got == [(note, MARK), MARK, (b'{"id":99,"result":{}}', None), (answer, None), "ended"]
    assert sink.got == [("interrupted",)]
    assert [kind for _, _, kind, _ in stage.records.calls] == [ErrorKind.TOOL]


async def test_an_id_whose_stream_was_lost_can_be_used_again(stage):
    stage.call(7)
    stage.link.asked[0].reply.interrupted()
    sink = stage.call(7)
    stage.link.asked[1].result()
    stage.link.asked[0].result()
    assert len(sink.got) == 1
    assert [kind for _, _, kind, _ in stage.records.calls] == [ErrorKind.CANCELLED, None]
