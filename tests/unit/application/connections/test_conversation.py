"""A client of the handshake era in front of one server: everything passes as it came, and is noted on the way."""

import pytest

from riglm.application.connections.single_server import SingleServerConnection
from riglm.domain import jsonrpc
from riglm.domain.invocation import DiscoveryMethod, ErrorKind
from riglm.domain.session import IdentificationMethod, Session, Transport
from riglm.ports.downstream import Caller
from riglm.ports.upstream import EventPosition, ResumedStreamHandler
from tests.unit.application.fakes import Channel, Server, Sink, World, asks, opened, tools

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


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":1.0,"method":"vendor/ask","params":{"x":1.50},"vendor":[ ]}',
        b'{ "id" : "\\u0061" , "method" : "tools/call" , "params" : [ ] }',
        b'{"id":"\\ud83d","method":"tools/list"}',
    ],
)
async def test_requests_and_answers_pass_as_they_came(stage, line):
    headers = {b"mcp-name": b"x"}
    sink = stage.send(line, headers=headers)
    (asked,) = stage.link.asked
    assert asked.message.line is line
    assert asked.reply.headers is headers
    answer = b'{"vendor":1.0, "id":%b ,"result":{"tools" : [ ]}}' % asked.message.id
    asked.reply.replied(jsonrpc.decode(answer), 202, MARK)
    assert sink.got == [("replied", answer, 202, MARK)]


async def test_notifications_and_answers_of_the_client_pass_as_they_came(stage):
    lines = [
        b'{"method":"notifications/initialized","x":1.0}',
        b'{"id":"s1","result":{ }}',
        b'{"id":null,"error":{"code":-32700,"message":"x"}}',
        b'{"method":"notifications/cancelled","params":{"requestId":99}}',
        b'{"method":"notifications/cancelled"}',
    ]
    for line in lines:
        stage.send(line)
    assert stage.link.sent == lines


async def test_the_session_learns_who_opened_it_and_with_which_revision(stage):
    stage.server.answers["initialize"] = opened("tools")
    stage.send(asks(1, "initialize", b'{"clientInfo":{"name":"code","version":"1"}}').line)
    (first, last) = stage.records.of(Session)
    assert (first.client.name, first.protocol_version, last.protocol_version) == ("code", "", "2025-11-25")


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


@pytest.mark.parametrize("params", [b'{"name":5}', b'{"name":""}', b"{}", b"[]"])
async def test_a_call_that_names_no_tool_passes_and_is_no_invocation(stage, params):
    stage.send(asks(7, "tools/call", params).line)
    stage.link.asked[0].error(-32602)
    assert stage.records.calls == []


async def test_a_conversation_key_in_a_call_names_its_session():
    stage = Stage(meta_keys=("threadId",))
    for number, key in enumerate((b"one", b"two", b"one")):
        stage.call(number, meta=b'{"threadId":"%b"}' % key)
        stage.link.asked[-1].result()
    one, two, again = (note.session_id for note in stage.records.of(stage.records.Note))
    assert one == again != two
    assert stage.conversation.session.method is IdentificationMethod.META_KEY


async def test_an_id_in_use_is_refused_and_the_first_request_keeps_it(stage):
    first, second = stage.call(7), stage.call(7)
    refusal = b'{"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"Invalid request: the id is in use"}}'
    assert second.got == [("replied", refusal, 400, None)]
    stage.link.asked[0].result()
    assert len(stage.link.asked) == len(first.got) == 1
    third = stage.call(7)
    stage.link.asked[1].result()
    assert len(third.got) == 1


async def test_a_cancellation_passes_as_it_came_and_nothing_comes_after(stage):
    sink = stage.call(7)
    notice = b'{"method":"notifications/cancelled","params":{"requestId":7.0,"reason":"x"}}'
    stage.send(notice)
    stage.link.asked[0].result()
    assert stage.link.cancelled == [(b"7", notice)]
    assert (stage.link.sent, sink.got) == ([], [])
    assert [kind for _, _, kind, _ in stage.records.calls] == [ErrorKind.CANCELLED]


async def test_what_the_server_says_goes_over_the_open_stream_or_waits_for_one(stage):
    said = [b'{"method":"notifications/message","params":{"n":%d}}' % number for number in range(3)]
    stage.link.says(said[0])
    stage.channel.is_open = False
    stage.link.says(said[1])
    stage.link.message_handler.unsolicited(stage.link, jsonrpc.decode(said[2]), MARK)
    stage.channel.is_open = True
    stage.conversation.listen(listening=False)
    assert stage.channel.told == said[:1]
    stage.conversation.listen(listening=True)
    assert stage.channel.told == said
    assert stage.link.listening == [False, True]


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


async def test_closing_ends_what_is_open_once(stage):
    sinks = [stage.call(1), stage.send(asks(2, "tools/list").line)]
    await stage.conversation.close()
    await stage.conversation.close()
    for asked in stage.link.asked:
        asked.result()
    assert [sink.got for sink in sinks] == [[], []]
    assert [kind for _, _, kind, _ in stage.records.calls] == [ErrorKind.CANCELLED]
    assert stage.records.closed == list(stage.records.opened)
    assert stage.conversation._open is None


async def test_a_client_that_never_asked_anything_leaves_no_session(stage):
    await stage.conversation.close()
    assert stage.records.all == []


async def test_the_places_of_streams_are_the_link_s(stage):
    assert stage.conversation.resumable is stage.link.resumable is False
