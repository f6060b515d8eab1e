"""A client of the handshake era that is shown what a filter chooses: tools change, and nothing else does."""

import asyncio

import pytest

from riglm.application.aggregation.connection import MultiServerConnection
from riglm.application.aggregation.merged_lists import MergedListCache
from riglm.application.connections.single_server import SingleServerConnection
from riglm.domain import jsonrpc
from riglm.domain.exposure import Surface
from riglm.domain.invocation import DiscoveryMethod, ErrorKind
from riglm.domain.naming import prefixed
from riglm.domain.session import Transport
from riglm.ports.downstream import Caller
from riglm.ports.upstream import EventPosition, ResumedStreamHandler
from tests.unit.application.fakes import Channel, Server, Sink, asks, opened, tools
from tests.unit.application.filter_middleware.scripted import ShowingWorld

CHANGED = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
CALLER = Caller(transport=Transport.HTTP)


class Stage(ShowingWorld):
    """A client, the filter, and one server."""

    def __init__(self, **more):
        super().__init__(**more)
        self.server = Server("up")
        self.channel = Channel()
        self.conversation = self.converse()

    def converse(self):
        return SingleServerConnection(self.services, self.server, CALLER, self.channel, self.showing)

    def send(self, line, **more):
        sink = Sink()
        self.conversation.received(jsonrpc.decode(line), sink, **more)
        return sink

    def list(self, number=1, params=b"{}"):
        return self.send(asks(number, "tools/list", params).line)

    def call(self, number, name, arguments=b"{}", meta=b""):
        more = b',"_meta":%b' % meta if meta else b""
        params = b'{"name":%b,"arguments":%b%b}' % (jsonrpc.encode(name), arguments, more)
        return self.send(asks(number, "tools/call", params).line)

    @property
    def link(self):
        return self.server.link


@pytest.fixture
async def stage():
    made = Stage()
    yield made
    await made.conversation.close()


def names_of(message):
    return [tool["name"] for tool in jsonrpc.plain(message.result)["tools"]]


async def test_an_error_of_the_list_passes_unchanged_whatever_page_it_is_for(stage):
    sink = stage.list()
    stage.link.asked[0].error(-32601, "no tools")
    assert sink.answers[0].line == jsonrpc.error(b"1", -32601, "no tools").line
    sink = stage.list(2)
    stage.link.asked[1].result(tools("a", nextCursor="n1"))
    stage.link.asked[2].error(-32602, "bad cursor")
    assert sink.answers[0].line == jsonrpc.error(b"2", -32602, "bad cursor").line


async def test_a_list_without_end_ends(stage):
    stage.filter.shown = {"a"}
    sink = stage.list()
    for asked in range(2):
        stage.link.asked[asked].result(tools("a", nextCursor="again"))
    assert names_of(sink.answers[0]) == ["a", "search_available_tools"]


async def test_a_filter_that_fails_shows_everything_but_what_is_denied(stage, caplog):
    stage.filter.fails = ZeroDivisionError("the filter")
    for number in (1, 2):
        sink = stage.list(number)
        stage.link.asked[-1].result(tools("a", "b"))
        assert names_of(sink.answers[0]) == ["a", "b"]
    stage.filter.denied = {"a"}
    sink = stage.list(3)
    stage.link.asked[-1].result(tools("a", "b"))
    assert names_of(sink.answers[0]) == ["b"]
    assert [record.name for record in caplog.records] == ["riglm.filtering"]


async def test_an_id_that_riglm_works_for_is_in_use(stage):
    stage.list(5)
    stage.link.asked[0].result(tools("a", nextCursor="n"))
    sink = stage.send(asks(5, "ping").line)
    assert jsonrpc.error_code(sink.answers[0]) == jsonrpc.INVALID_REQUEST


DISGUISED = [
    b'"method":"tools/call","params":{"name":"a","Name":"delete"}',
    b'"method":"tools/call","params":{"NAME":"delete"}',
    b'"method":"tools/call","params":{"n\\u0041me":"delete","name":"a"}',
    b'"method":"tools/call","params":{"name":"call_tool","Name":"delete","arguments":{"name":"a"}}',
    b'"method":"tools/call","params":{"name":"a"},"Params":{"name":"delete"}',
    b'"method":"tools/call","params":{"name":"a"},"param\\u017f":{"name":"delete"}',
    b'"method":"ping","Method":"tools/call","params":{"name":"delete"}',
    b'"METHOD":"tools/call","method":"vendor/x","params":{"name":"delete"}',
]
"""What a server that does not mind the case of keys takes for a call of `delete`."""


@pytest.mark.parametrize("members", DISGUISED, ids=bytes.decode)
async def test_a_key_that_could_be_taken_for_another_is_refused_where_anything_is_denied(stage, members):
    line = b'{"jsonrpc":"2.0","id":1,%b}' % members
    stage.send(line)
    assert [asked.message.line for asked in stage.link.asked] == ([] if b"call_tool" in line else [line])
    stage.link.asked.clear()
    stage.filter.denied = {"delete"}
    sink = stage.send(line.replace(b'"id":1', b'"id":2'))
    assert jsonrpc.error_code(sink.answers[0]) == jsonrpc.INVALID_REQUEST
    assert "could be taken for" in jsonrpc.plain(sink.answers[0].error)["message"]
    assert stage.link.asked == []


async def test_a_notice_that_could_be_taken_for_a_call_reaches_no_server_where_anything_is_denied(stage):
    notice = b'{"method":"notifications/x","Method":"tools/call","ID":7,"params":{"name":"delete"}}'
    stage.send(notice)
    stage.filter.denied = {"delete"}
    sink = stage.send(notice)
    assert stage.link.sent == [notice]
    assert sink.got == []


UNREADABLE = [
    b'{"tools":[{"name":"delete","name":"a"},{"name":"b"}]}',
    b'{"tools":[{"name":"a","Name":"delete"},{"name":"b"}]}',
    b'{"tools":[{"name":"a","n\\u0061me":"delete"},{"name":"b"}]}',
    b'{"tools":[{"name":"delete","x\xff":1},{"name":"b"}]}',
    b'{"tools":[{"name":"delete"}],"tools":[{"name":"b"}]}',
    b'{"tools":[["delete"],{"name":"b"}]}',
]
"""Lists in which another reader may see a tool called `delete`."""


@pytest.mark.parametrize("params", [b"{}", b'{"cursor":"c"}'])
@pytest.mark.parametrize("raw", UNREADABLE, ids=repr)
async def test_what_cannot_be_read_for_sure_is_not_listed_where_anything_is_denied(stage, raw, params):
    stage.filter.denied = {"delete"}
    sink = stage.list(1, params)
    line = b'{"jsonrpc":"2.0","id":1,"result":%b}' % raw
    stage.link.asked[0].reply.replied(jsonrpc.Message(line, b"1", None, result=jsonrpc.Raw(raw)))
    assert b"delete" not in sink.got[0][1]
    assert b'{"name":"b"}' in sink.got[0][1]


async def test_a_page_that_cannot_be_looked_through_is_not_shown_where_anything_is_denied(stage, caplog):
    stage.filter.denied = {"delete"}
    stage.filter.denial = None
    sink = stage.list(1, b'{"cursor":"c"}')
    stage.link.asked[0].result(tools("delete"))
    assert jsonrpc.error_code(sink.answers[0]) == jsonrpc.INTERNAL_ERROR
    assert "some tools are denied" in caplog.text


async def test_the_rest_of_a_stream_carries_no_denied_tool(stage):
    got = []

    class Rest(ResumedStreamHandler):
        def continued(self, message, event=None):
            got.append((message.line, event))

        def primed(self, event):
            got.append(event)

        def ended(self):
            got.append("ended")

    def resume(last, stream):
        stream.primed(mark)
        stream.continued(note, mark)
        stream.continued(jsonrpc.result(b"7", tools("delete", "b")), mark)
        stream.continued(jsonrpc.result(b"8", b'{"content":[]}'), mark)
        stream.ended()

    note, mark = jsonrpc.notification("notifications/message"), EventPosition(b"e1", 100)
    stage.filter.denied = {"delete"}
    stage.list()
    stage.link.resume = resume
    stage.conversation.resume(b"guessed", Rest())
    assert got == [
        mark,
        (note.line, mark),
        (jsonrpc.result(b"7", tools("b")).line, mark),
        (jsonrpc.result(b"8", b'{"content":[]}').line, mark),
        "ended",
    ]


async def stage_asked(stage, count=1):
    """The so-manieth call that reached the server."""
    await asyncio.sleep(0)
    return await stage.link.next("tools/call", count)


async def test_an_own_tool_is_cancelled_before_it_has_done_anything(stage):
    stage.meta.gate = asyncio.Event()
    sink = stage.call(9, "call_tool", b'{"name":"far"}')
    await asyncio.sleep(0)
    stage.send(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}')
    stage.meta.gate.set()
    running = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*running, return_exceptions=True)
    assert stage.link.of("tools/call") == []
    assert sink.got == []


@pytest.mark.parametrize("target", ["delete", "DELETE"])
async def test_call_tool_reaches_no_denied_tool(stage, target):
    stage.filter.denied = {"delete"}
    sink = stage.call(1, "call_tool", b'{"name":%b}' % jsonrpc.encode(target))
    answer = await sink.answer()
    assert jsonrpc.plain(answer.error) == {"code": -32602, "message": f"Unknown tool: {target}"}
    assert stage.link.of("tools/call") == []
    assert stage.records.calls == [(target, "", ErrorKind.PROTOCOL, DiscoveryMethod.NAMED)]


async def test_call_tool_never_ends_in_a_tool_of_riglm(stage):
    stage.call(1, "call_tool", b'{"name":"call_tool","arguments":{"name":"x"}}')
    asked = await stage_asked(stage)
    assert jsonrpc.plain(asked.message.params)["name"] == "call_tool"
    assert len(stage.meta.ran) == 1


async def test_an_own_tool_that_fails_is_an_error_and_the_next_request_works(stage, caplog):
    stage.server.answers["tools/list"] = tools("a")
    stage.meta.fails = ZeroDivisionError("own")
    answer = await stage.call(1, "set_context").answer()
    assert answer.error
    assert "a request failed inside riglm" in caplog.text
    assert stage.call(1, "a").got == []


async def test_a_list_that_changed_while_it_was_asked_for_counts_for_one_answer_only(stage):
    sink = stage.list(1)
    stage.link.asked[0].result(tools("a", nextCursor="n"))
    stage.link.says(CHANGED)
    stage.link.asked[1].result(tools("c"))
    assert names_of(sink.answers[0])[:1] == ["a"]
    for number, torn in ((2, True), (3, False)):
        search = stage.call(number, "search_available_tools", b'{"query":"q"}')
        asked = await stage.link.next("tools/list", number + 1)
        if torn:
            stage.link.says(CHANGED)
        asked.result(tools("a", "b", "c"))
        await search.answer()
    await stage.call(4, "search_available_tools", b'{"query":"q"}').answer()
    assert stage.filter.known == [("a", "c"), *[("a", "b", "c")] * 3]
    assert len(stage.link.of("tools/list")) == 4


@pytest.mark.parametrize("denied", [False, True])
async def test_a_server_s_own_tool_of_a_name_of_riglm_s_is_the_server_s_where_riglm_offers_none(stage, denied):
    stage.filter.seen = None
    stage.filter.denied = {"call_tool"} if denied else set()
    sink = stage.call(1, "call_tool", b'{"name":"x"}')
    (await stage.link.next("tools/list")).result(tools("call_tool"))
    if denied:
        assert jsonrpc.error_code(await sink.answer()) == -32602
    else:
        asked = await stage.link.next("tools/call")
        assert bytes(asked.message.params) == b'{"name":"call_tool","arguments":{"name":"x"}}'
    assert stage.meta.ran == []


async def test_a_change_by_an_own_tool_comes_with_its_answer_where_no_stream_is_open(stage):
    stage.server.answers["tools/list"] = tools("a")
    stage.list()
    stage.channel.is_open = False
    sink = stage.call(2, "set_context", b"{}")
    await sink.answer()
    assert sink.got[0][:2] == ("related", CHANGED)


@pytest.mark.parametrize(
    ("kind", "capabilities", "announced"),
    [
        (Surface.DYNAMIC, b'{"tools":{},"x":1.0}', b'{"tools":{"listChanged":true},"x":1.0}'),
        (Surface.DYNAMIC, b'{"tools": {"listChanged":true}}', b'{"tools": {"listChanged":true}}'),
        (Surface.DYNAMIC, b'{"prompts":{}}', b'{"prompts":{}}'),
        (Surface.FULL, b'{"tools":{}}', b'{"tools":{}}'),
    ],
)
async def test_the_greeting_announces_changes_where_lists_change(stage, kind, capabilities, announced):
    stage.filter.kind = kind
    sink = stage.send(asks(0, "initialize", b'{"clientInfo":{"name":"c"}}').line)
    stage.link.asked[0].result(b'{"capabilities":%b,"serverInfo":{"v":1.50}}' % capabilities)
    assert sink.got[0][1] == (
        b'{"jsonrpc":"2.0","id":0,"result":{"capabilities":%b,"serverInfo":{"v":1.50}}}' % announced
    )


async def test_recorded_use_that_comes_too_late_is_not_waited_for(stage, monkeypatch):
    monkeypatch.setattr("riglm.application.filter_middleware.middleware.PREPARING_SECONDS", 0.001)
    stage.filter.awaits_usage = True
    sink = stage.list()
    stage.link.asked[0].result(tools("a"))
    assert names_of(await sink.answer()) == ["a"]


class Many(Stage):
    """Two servers shown as one."""

    naming = "prefix"
    tools = ("delete", "read")

    def converse(self):
        answers = {"initialize": opened("tools")}
        self.servers = [
            Server("one", {**answers, "tools/list": tools(*self.tools)}),
            Server("two", {**answers, "tools/list": tools("write")}),
        ]
        merged_lists = MergedListCache(self.naming)
        return MultiServerConnection(self.services, self.servers, merged_lists, CALLER, self.channel, self.showing)

    async def hello(self):
        await self.send(asks(0, "initialize", b"{}").line).answer()

    @property
    def reached(self):
        return [asked.message.method for server in self.servers for asked in server.link.of("tools/call")]


LONG = "delete_every_record_of_the_production_customer_database_for_good"


@pytest.mark.parametrize("through", [False, True])
@pytest.mark.parametrize(
    ("naming", "denied", "called"),
    [
        ("prefix", LONG, prefixed("one", LONG)),
        ("prefix", f"one__{LONG}", prefixed("one", LONG)),
        ("on_collision", "one__delete", "delete"),
        ("none", "one__delete", "delete"),
    ],
)
async def test_a_tool_that_no_list_has_told_yet_is_denied_by_its_owner_s_name_for_it(naming, denied, called, through):
    stage = type("Named", (Many,), {"naming": naming, "tools": ("delete", "read", LONG)})()
    await stage.hello()
    stage.filter.denied = {denied}
    arguments = jsonrpc.encode({"name": called})
    sink = stage.call(5, "call_tool", arguments) if through else stage.call(5, called)
    assert jsonrpc.plain((await sink.answer()).error) == {"code": -32602, "message": f"Unknown tool: {called}"}
    assert stage.reached == []
    assert [(tool, upstream, kind) for tool, upstream, kind, _ in stage.records.calls] == [
        (called, "", ErrorKind.PROTOCOL)
    ]
    await stage.conversation.close()


async def test_a_tool_that_no_list_has_told_yet_is_reached_by_its_short_form():
    stage = type("Named", (Many,), {"tools": (LONG,)})()
    await stage.hello()
    sink = stage.call(5, prefixed("one", LONG))
    asked = await stage.servers[0].link.next("tools/call")
    assert jsonrpc.text(jsonrpc.members(asked.message.params)["name"]) == LONG
    asked.result(b"{}")
    assert (await sink.answer()).id == b"5"
    await stage.conversation.close()
