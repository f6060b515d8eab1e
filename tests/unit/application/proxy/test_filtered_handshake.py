"""A client of the handshake era that is shown what a filter chooses: tools change, and nothing else does."""

import asyncio

import pytest

from riglm.application.proxy.proxy_service import ProxyService
from riglm.domain import jsonrpc
from riglm.domain.exposure import Surface
from riglm.domain.session import Transport
from riglm.ports.downstream import Caller
from tests.unit.application.fakes import Channel, Server, Sink, asks, settle, tools
from tests.unit.application.proxy.scripted import ShowingWorld

CHANGED = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
CALLER = Caller(transport=Transport.HTTP)


class Stage(ShowingWorld):
    """A client, the filter, and one server."""

    def __init__(self, **more):
        super().__init__(**more)
        self.server = Server("up")
        self.channel = Channel()
        self.proxy = ProxyService(self.parts, [self.server])
        self.conversation = self.converse()

    def converse(self):
        return self.proxy.connect(CALLER, self.channel)

    def send(self, line, **more):
        sink = Sink()
        self.conversation.receive(jsonrpc.decode(line), sink, **more)
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
    await settle()
    stage.link.asked[0].error(-32601, "no tools")
    await settle()
    assert sink.answers[0].line == jsonrpc.error(b"1", -32601, "no tools").line
    sink = stage.list(2)
    await settle()
    stage.link.asked[1].result(tools("a", nextCursor="n1"))
    await settle()
    stage.link.asked[2].error(-32602, "bad cursor")
    await settle()
    assert sink.answers[0].line == jsonrpc.error(b"2", -32602, "bad cursor").line


async def test_a_list_without_end_ends(stage):
    stage.filter.shown = {"a"}
    sink = stage.list()
    await settle()
    for asked in range(2):
        stage.link.asked[asked].result(tools("a", nextCursor="again"))
        await settle()
    assert names_of(sink.answers[0]) == ["a", "search_available_tools"]


async def test_a_filter_that_fails_shows_everything_but_what_is_denied(stage, caplog):
    stage.filter.fails = ZeroDivisionError("the filter")
    for number in (1, 2):
        sink = stage.list(number)
        await settle()
        stage.link.asked[-1].result(tools("a", "b"))
        await settle()
        assert names_of(sink.answers[0]) == ["a", "b"]
    stage.filter.denied = {"a"}
    sink = stage.list(3)
    await settle()
    stage.link.asked[-1].result(tools("a", "b"))
    await settle()
    assert names_of(sink.answers[0]) == ["b"]
    assert [record.name for record in caplog.records] == ["riglm.filtering"]


"""What a server that does not mind the case of keys takes for a call of `delete`."""


async def test_a_notice_that_could_be_taken_for_a_call_reaches_no_server_where_anything_is_denied(stage):
    notice = b'{"method":"notifications/x","Method":"tools/call","ID":7,"params":{"name":"delete"}}'
    stage.send(notice)
    await settle()
    stage.filter.denied = {"delete"}
    sink = stage.send(notice)
    await settle()
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
    await settle()
    line = b'{"jsonrpc":"2.0","id":1,"result":%b}' % raw
    stage.link.asked[0].reply.replied(jsonrpc.Message(line, b"1", None, result=jsonrpc.Raw(raw)))
    await settle()
    assert b"delete" not in sink.got[0][1]
    assert b'{"name":"b"}' in sink.got[0][1]


async def test_a_page_that_cannot_be_looked_through_is_not_shown_where_anything_is_denied(stage, caplog):
    stage.filter.denied = {"delete"}
    stage.filter.denial = None
    sink = stage.list(1, b'{"cursor":"c"}')
    await settle()
    stage.link.asked[0].result(tools("delete"))
    await settle()
    assert jsonrpc.error_code(sink.answers[0]) == jsonrpc.INTERNAL_ERROR
    assert "some tools are denied" in caplog.text


async def stage_asked(stage, count=1):
    """The so-manieth call that reached the server."""
    await asyncio.sleep(0)
    return await stage.link.next("tools/call", count)


async def test_call_tool_never_ends_in_a_tool_of_riglm(stage):
    stage.call(1, "call_tool", b'{"name":"call_tool","arguments":{"name":"x"}}')
    await settle()
    asked = await stage_asked(stage)
    assert jsonrpc.plain(asked.message.params)["name"] == "call_tool"
    assert len(stage.meta.ran) == 1


async def test_an_own_tool_that_fails_is_an_error_and_the_next_request_works(stage, caplog):
    stage.server.answers["tools/list"] = tools("a")
    stage.meta.fails = ZeroDivisionError("own")
    answer = await stage.call(1, "set_context").answer()
    assert answer.error
    assert "a stage of a request failed" in caplog.text
    assert stage.call(1, "a").got == []


async def test_a_list_that_changed_while_it_was_asked_for_counts_for_one_answer_only(stage):
    sink = stage.list(1)
    await settle()
    stage.link.asked[0].result(tools("a", nextCursor="n"))
    await settle()
    stage.link.says(CHANGED)
    stage.link.asked[1].result(tools("c"))
    await settle()
    assert names_of(sink.answers[0])[:1] == ["a"]
    for number, torn in ((2, True), (3, False)):
        search = stage.call(number, "search_available_tools", b'{"query":"q"}')
        await settle()
        asked = await stage.link.next("tools/list", number + 1)
        if torn:
            stage.link.says(CHANGED)
        asked.result(tools("a", "b", "c"))
        await settle()
        await search.answer()
    await stage.call(4, "search_available_tools", b'{"query":"q"}').answer()
    assert stage.filter.known == [("a", "c"), *[("a", "b", "c")] * 3]
    assert len(stage.link.of("tools/list")) == 4


@pytest.mark.parametrize("denied", [False, True])
async def test_a_server_s_own_tool_of_a_name_of_riglm_s_is_the_server_s_where_riglm_offers_none(stage, denied):
    stage.filter.seen = None
    stage.filter.denied = {"call_tool"} if denied else set()
    sink = stage.call(1, "call_tool", b'{"name":"x"}')
    await settle()
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
    await settle()
    stage.channel.is_open = False
    sink = stage.call(2, "set_context", b"{}")
    await settle()
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
    await settle()
    stage.link.asked[0].result(b'{"capabilities":%b,"serverInfo":{"v":1.50}}' % capabilities)
    await settle()
    assert sink.got[0][1] == (
        b'{"jsonrpc":"2.0","id":0,"result":{"capabilities":%b,"serverInfo":{"v":1.50}}}' % announced
    )


async def test_recorded_use_that_comes_too_late_is_not_waited_for(stage, monkeypatch):
    monkeypatch.setattr("riglm.application.proxy.list_stage.PREPARING_SECONDS", 0.001)
    stage.filter.awaits_usage = True
    sink = stage.list()
    await settle()
    stage.link.asked[0].result(tools("a"))
    await settle()
    assert names_of(await sink.answer()) == ["a"]
