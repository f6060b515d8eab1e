"""Several servers as one, for a client of the handshake era."""

import asyncio

import pytest

from riglm.application.aggregation.connection import MultiServerConnection
from riglm.application.aggregation.merged_lists import MergedListCache
from riglm.domain import jsonrpc
from riglm.domain.invocation import DiscoveryMethod, ErrorKind
from riglm.domain.session import IdentificationMethod, Session, Transport
from riglm.ports.downstream import Caller
from tests.unit.application.fakes import Channel, Server, Sink, World, asks, listed, opened, tools

INITIALIZE = b'{"protocolVersion":"2025-06-18","capabilities":{ "roots":{} },"clientInfo":{"name":"c","version":"1"}}'
TOOLS_CHANGED = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'


def server(name, *names, **more):
    """A server with tools."""
    return Server(name, {"initialize": opened("tools", "resources", "prompts"), "tools/list": tools(*names), **more})


def held(asked):
    """No answer for now."""


class Stage(World):
    """A client in front of servers."""

    def __init__(self, *servers, naming="prefix", **more):
        super().__init__(**more)
        self.servers = {server.spec.name: server for server in servers}
        self.merged_lists = MergedListCache(naming)
        self.channel = Channel()
        self.conversation = self.converse(self.channel)
        self._count = 100

    def converse(self, channel):
        caller = Caller(transport=Transport.HTTP)
        return MultiServerConnection(self.services, list(self.servers.values()), self.merged_lists, caller, channel)

    def send(self, message):
        sink = Sink()
        self.conversation.received(message, sink)
        return sink

    def notify(self, line):
        self.conversation.received(jsonrpc.decode(line), Sink())

    async def ask(self, method, params=b"{}"):
        self._count += 1
        return await self.send(asks(self._count, method, params)).answer()

    async def open(self):
        answer = await self.ask("initialize", INITIALIZE)
        self.conversation.listen(listening=True)
        return answer

    async def names(self):
        answer = await self.ask("tools/list")
        return [jsonrpc.plain(tool)["name"] for tool in jsonrpc.elements(jsonrpc.members(answer.result)["tools"])]

    def link(self, name):
        return self.servers[name].link

    async def told(self, count):
        await self.channel.until(lambda: len(self.channel.told) >= count)
        return self.channel.told


@pytest.fixture
async def two():
    stage = Stage(server("a", "t", "u"), server("b", "t"))
    await stage.open()
    yield stage
    await stage.conversation.close()


def call(name, arguments=b'{"n" : 1.0}', meta=b""):
    more = b',"_meta":%b' % meta if meta else b""
    return b'{"name":"%b","arguments":%b%b}' % (name, arguments, more)


# --- opening ---


async def test_the_handshake_goes_to_every_server_as_it_came_and_their_answers_become_one():
    one = server("a")
    one.answers["initialize"] = opened("tools", "logging", instructions="Be kind.", vendor=1)
    other = server("b")
    other.answers["initialize"] = b'{"capabilities":{"resources":{"subscribe":true},"tools":{"x":1}}}'
    stage = Stage(one, other)
    answer = jsonrpc.plain((await stage.open()).result)
    assert answer["protocolVersion"] == "2025-06-18"
    assert answer["capabilities"] == {
        "tools": {"listChanged": True, "x": 1},
        "logging": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
    }
    assert answer["serverInfo"]["name"] == "riglm"
    assert answer["instructions"] == "# a\nBe kind."
    for name in ("a", "b"):
        (asked,) = stage.link(name).asked
        assert bytes(asked.message.params) == INITIALIZE
        assert stage.link(name).sent == [b'{"jsonrpc":"2.0","method":"notifications/initialized"}']
        assert stage.link(name).listening == [True]
    assert stage.conversation.session.protocol_version == "2025-06-18"
    await stage.conversation.close()


async def test_an_unknown_revision_gets_the_latest_one():
    stage = Stage(server("a"), server("b"))
    answer = await stage.ask("initialize", b'{"protocolVersion":"1999-01-01"}')
    assert jsonrpc.plain(answer.result)["protocolVersion"] == "2025-11-25"
    await stage.conversation.close()


async def test_a_client_that_asks_before_it_opens_is_introduced_by_riglm():
    stage = Stage(server("a", "t"), server("b"))
    assert await stage.names() == ["a__t"]
    introduced = jsonrpc.plain((await stage.link("a").next("initialize")).message.params)
    assert (introduced["protocolVersion"], introduced["clientInfo"]["name"]) == ("2025-11-25", "riglm")
    await stage.conversation.close()


async def test_a_server_that_opens_late_is_announced_and_nobody_waits_for_it_again():
    late = server("b", "late")
    late.answers["initialize"] = held
    stage = Stage(server("a", "t"), late)
    capabilities = jsonrpc.plain((await stage.open()).result)["capabilities"]
    assert capabilities["prompts"] == {"listChanged": True}
    assert await stage.names() == ["a__t"]
    (await stage.link("b").next("initialize")).result(opened("tools"))
    assert await stage.told(1) == [TOOLS_CHANGED]
    assert await stage.names() == ["a__t", "b__late"]
    await stage.conversation.close()


@pytest.mark.parametrize("slow_at", ["initialize", "tools/list"])
async def test_the_first_list_of_a_client_that_never_asks_again_waits_for_the_slowest_server(slow_at):
    late = server("b", "late")
    at_last = late.answers[slow_at]
    late.answers[slow_at] = held
    stage = Stage(server("a", "t"), late, grace=0.01, longest_list=30.0)
    await stage.open()
    listing = asyncio.create_task(stage.names())
    (await stage.link("b").next(slow_at)).result(at_last)
    assert await listing == ["a__t", "b__late"]
    await stage.conversation.close()


@pytest.mark.parametrize("client", ["claude-code", "gemini-cli-mcp-client", "codex-mcp-client"])
async def test_a_client_that_hears_of_changes_or_starts_without_its_list_does_not_wait(client):
    stage = Stage(server("a", "t"), server("b", initialize=held), grace=0.01, longest_list=3600.0)
    await stage.ask("initialize", INITIALIZE.replace(b'"name":"c"', b'"name":"%b"' % client.encode()))
    assert await stage.names() == ["a__t"]
    await stage.conversation.close()


async def test_an_incomplete_list_names_the_servers_that_it_lacks_and_is_no_exposure(caplog):
    stage = Stage(server("a", "t"), server("b", "u", initialize=held), server("c", **{"tools/list": held}))
    await stage.open()
    for _ in range(2):
        answer = await stage.ask("tools/list")
        assert bytes(answer.result) == b'{"tools":[{"name":"a__t"}],"_meta":{"riglm/missing":["b","c"]}}'
    assert [record.missing for record in caplog.records] == [["b", "c"]]
    assert stage.records.shown == []
    (await stage.link("b").next("initialize")).result(opened("tools"))
    (await stage.link("c").next("tools/list")).result(tools("v"))
    assert await stage.told(1) == [TOOLS_CHANGED]
    stage.servers["c"].answers["tools/list"] = tools("v")
    assert await stage.names() == ["a__t", "b__u", "c__v"]
    assert stage.records.shown == [("a__t", "b__u", "c__v")]
    await stage.conversation.close()


async def test_while_no_list_is_known_the_answer_comes_before_the_client_gives_up():
    stage = Stage(server("a", initialize=held), server("b", initialize=held))
    await stage.open()
    answer = await stage.ask("tools/list")
    assert bytes(answer.result) == b'{"tools":[],"_meta":{"riglm/missing":["a","b"]}}'
    await stage.conversation.close()


@pytest.mark.parametrize(("code", "fails"), [(-32601, False), (-32603, True)])
async def test_nobody_waits_for_a_hung_server_where_all_others_said_that_they_have_no_list(code, fails):
    refusing = server("a", **{"prompts/list": lambda asked: asked.error(code)})
    stage = Stage(refusing, server("b", initialize=held))
    await stage.open()
    answer = await stage.ask("prompts/list")
    assert bool(answer.error) is fails
    assert stage.link("b").of("initialize")
    await stage.conversation.close()


async def test_a_server_that_cannot_be_opened_is_left_out_and_tried_again_later(monkeypatch):
    stage = Stage(server("a", "t"), server("b", "u", initialize=lambda asked: asked.dies("b is down")))
    await stage.open()
    assert await stage.names() == ["a__t"]
    answer = await stage.ask("tools/call", call(b"b__u"))
    assert answer.line.endswith(b'"error":{"code":-32000,"message":"upstream \'b\' is not available: b is down"}}')
    assert len(stage.link("b").of("initialize")) == 1
    monkeypatch.setattr("riglm.application.aggregation.upstream_session._RETRY_SECONDS", 0.0)
    stage.servers["b"].answers["initialize"] = opened("tools")
    assert await stage.names() == ["a__t", "b__u"]
    await stage.conversation.close()


async def test_a_server_that_only_speaks_the_modern_era_takes_part_over_a_bridge():
    modern = Server(
        "b",
        {
            "initialize": lambda asked: asked.error(-32601),
            "server/discover": b'{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"instructions":"Hi."}',
            "tools/list": tools("new"),
        },
    )
    stage = Stage(server("a", "t"), modern)
    assert jsonrpc.plain((await stage.open()).result)["instructions"] == "# b\nHi."
    assert await stage.names() == ["a__t", "b__new"]
    assert modern.links[0].closed == 1
    await stage.conversation.close()


async def test_a_server_that_refuses_the_handshake_and_speaks_nothing_else_is_left_out():
    old = Server(
        "b", {"initialize": lambda asked: asked.error(-32602), "server/discover": lambda asked: asked.error(-1)}
    )
    stage = Stage(server("a", "t"), old)
    await stage.open()
    assert await stage.names() == ["a__t"]
    await stage.conversation.close()


async def test_a_bridge_that_is_refused_leads_to_no_other_bridge():
    gone = Server("b", {"server/discover": lambda asked: asked.error(-32603, "gone")}, handshake=False, modern=True)
    stage = Stage(server("a", "t"), gone)
    await stage.open()
    assert await stage.names() == ["a__t"]
    assert gone.links == []
    assert gone.shared.methods == ["server/discover"]
    await stage.conversation.close()


async def test_closing_while_a_refused_link_closes_closes_both():
    modern = Server("b", {"initialize": lambda asked: asked.error(-32601)}, modern=True)
    stage = Stage(server("a"), modern)
    closing, ends = asyncio.Event(), []

    async def slow_close():
        closing.set()
        ends.append(1)
        if len(ends) == 1:
            await asyncio.get_running_loop().create_future()

    modern.links[0].close = slow_close
    stage.send(asks(1, "initialize", INITIALIZE))
    await closing.wait()
    await stage.conversation.close()
    assert len(ends) == 2


async def test_closing_while_a_bridge_is_looked_for_leaves_nothing():
    slow = Server("b", {"initialize": lambda asked: asked.error(-32601), "server/discover": held})
    stage = Stage(server("a"), slow)
    sink = stage.send(asks(1, "initialize", INITIALIZE))
    await (await slow.links[0].until(lambda: slow.shared)).next("server/discover")
    await stage.conversation.close()
    slow.shared.asked[0].result(b'{"supportedVersions":["2026-07-28"]}')
    assert sink.got == []
    assert slow.links[0].closed == 1


# --- calls ---


async def test_a_call_goes_to_its_server_under_its_own_name_and_comes_back_as_it_is(two):
    await two.names()
    sink = two.send(asks(7, "tools/call", call(b"b__t")))
    (asked,) = two.link("b").of("tools/call")
    assert asked.message.line == (
        b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","arguments":{"n" : 1.0}}}'
    )
    asked.says(b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"x": 1.0}}')
    asked.reply.replied(jsonrpc.decode(b'{"id":7,"jsonrpc":"2.0","result":{"content": [ ]},"vendor":1.50}'))
    asked.result()
    assert [each[:2] for each in sink.got] == [
        ("related", b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"x": 1.0}}'),
        ("replied", b'{"id":7,"jsonrpc":"2.0","result":{"content": [ ]},"vendor":1.50}'),
    ]
    assert two.link("a").of("tools/call") == []
    assert two.records.calls == [("b__t", "b", None, DiscoveryMethod.LISTED)]


async def test_a_call_is_one_request_and_needs_no_list(two):
    two.send(asks(7, "tools/call", call(b"a__unlisted")))
    assert two.link("a").methods == ["initialize", "tools/call"]
    two.link("a").asked[-1].result()
    assert two.records.calls == [("a__unlisted", "a", None, DiscoveryMethod.NAMED)]


async def test_a_failed_call_of_a_name_that_its_server_does_not_list_is_no_tool_s(two):
    """The prefix leads to the server even so, which answers by `isError`; what counts is what is known by then."""

    def ask(number, name):
        two.send(asks(number, "tools/call", call(name)))
        return two.link("a").of("tools/call")[-1]

    def fail(asked):
        asked.result(b'{"isError":true}')

    fail(ask(6, b"a__before_any_list"))
    early = ask(7, b"a__before_the_list")
    await two.names()
    fail(early)
    fail(ask(8, b"a__t"))
    fail(ask(9, b"a__made_up"))
    assert [(name, server, kind) for name, server, kind, _ in two.records.calls] == [
        ("a__before_any_list", "a", ErrorKind.TOOL),
        ("a__before_the_list", "a", ErrorKind.PROTOCOL),
        ("a__t", "a", ErrorKind.TOOL),
        ("a__made_up", "a", ErrorKind.PROTOCOL),
    ]


async def test_a_call_that_names_no_tool_is_refused_and_is_no_invocation(two):
    answer = await two.ask("tools/call", b'{"name":5}')
    assert jsonrpc.error_code(answer) == -32602
    assert two.records.calls == []


async def test_an_unknown_tool_is_looked_for_and_refused(two):
    answer = await two.ask("tools/call", call(b"nobody"))
    assert answer.line.endswith(b'"error":{"code":-32602,"message":"Unknown tool: nobody"}}')
    assert two.records.calls == [("nobody", "", ErrorKind.PROTOCOL, DiscoveryMethod.NAMED)]
    assert two.link("a").methods == two.link("b").methods == ["initialize", "tools/list"]


async def test_a_call_without_a_name_is_refused(two):
    answer = await two.ask("tools/call", b"{}")
    assert jsonrpc.error_code(answer) == -32602


async def test_a_name_that_only_a_list_tells_is_found_in_it():
    stage = Stage(server("a", "t"), server("b", "u"), naming="on_collision")
    await stage.open()
    sink = stage.send(asks(7, "tools/call", call(b"u")))
    (await stage.link("b").next("tools/call")).result()
    assert (await sink.answer()).id == b"7"
    await stage.conversation.close()


async def test_an_ambiguous_name_is_refused_with_those_that_would_do():
    stage = Stage(server("a", "t"), server("b", "t"), naming="on_collision")
    await stage.open()
    answer = await stage.ask("tools/call", call(b"t"))
    words = jsonrpc.plain(answer.error)["message"]
    assert words == "Unknown tool: t; use a__t or b__t"
    await stage.conversation.close()


async def test_a_conversation_key_in_a_call_names_its_session():
    stage = Stage(server("a", "t"), server("b"), meta_keys=("threadId",))
    await stage.open()
    for key in (b"one", b"two", b"one"):
        stage.send(asks(int(key == b"two"), "tools/call", call(b"a__t", meta=b'{"threadId":"%b"}' % key)))
        stage.link("a").asked[-1].result()
    sessions = [note.session_id for note in stage.records.of(stage.records.Note)]
    assert sessions[0] == sessions[2] != sessions[1]
    assert stage.conversation.session.method is IdentificationMethod.META_KEY
    await stage.conversation.close()


async def test_an_id_in_use_is_refused_and_the_first_request_keeps_it(two):
    first = two.send(asks(7, "tools/call", call(b"a__t")))
    second = two.send(asks(7, "tools/call", call(b"b__t")))
    assert [each[:3] for each in second.got] == [
        (
            "replied",
            b'{"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"Invalid request: the id is in use"}}',
            400,
        )
    ]
    assert two.link("b").of("tools/call") == []
    two.notify(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7.0}}')
    assert [cancelled for cancelled, _ in two.link("a").cancelled] == [b"7"]
    assert first.got == []


async def test_a_server_that_dies_in_a_call_fails_the_call_and_is_asked_for_its_lists_again(two):
    await two.names()
    sink = two.send(asks(7, "tools/call", call(b"b__t")))
    two.link("b").asked[-1].dies("upstream 'b' died")
    assert jsonrpc.plain((await sink.answer()).error) == {"code": -32000, "message": "upstream 'b' died"}
    two.servers["b"].answers["tools/list"] = tools("reborn")
    assert await two.names() == ["a__t", "a__u", "b__reborn"]
    assert len(two.link("a").of("tools/list")) == 1


async def test_a_call_waits_for_its_server_to_open():
    late = server("b", "t")
    late.answers["initialize"] = held
    stage = Stage(server("a"), late)
    await stage.open()
    sink = stage.send(asks(7, "tools/call", call(b"b__t")))
    (await stage.link("b").next("initialize")).result(opened("tools"))
    (await stage.link("b").next("tools/call")).result()
    assert (await sink.answer()).result
    await stage.conversation.close()


# --- giving up ---


def cancelled(number):
    return b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d,"reason":"x"}}' % number


async def test_a_cancellation_reaches_the_server_of_the_call_as_it_came_and_nothing_comes_after(two):
    sink = two.send(asks(7, "tools/call", call(b"a__t")))
    two.notify(cancelled(7))
    two.notify(cancelled(7))
    two.link("a").asked[-1].says(b'{"jsonrpc":"2.0","method":"notifications/progress"}')
    two.link("a").asked[-1].result()
    assert two.link("a").cancelled == [(b"7", cancelled(7))]
    assert two.link("b").cancelled == []
    assert sink.got == []
    assert two.records.calls == [("a__t", "a", ErrorKind.CANCELLED, DiscoveryMethod.NAMED)]


async def test_a_call_that_was_given_up_while_its_server_was_looked_for_is_never_made():
    slow = server("b", "u")
    slow.answers["tools/list"] = held
    stage = Stage(server("a", "t"), slow, naming="none", grace=0.5)
    await stage.open()
    sink = stage.send(asks(7, "tools/call", call(b"u")))
    listing = await stage.link("b").next("tools/list")
    stage.notify(cancelled(7))
    listing.result(tools("u"))
    assert (await stage.names()) == ["t", "u"]
    assert stage.link("b").of("tools/call") == []
    assert sink.got == []
    await stage.conversation.close()


async def test_a_call_that_was_given_up_while_its_server_opened_is_never_made():
    late = server("b", "t")
    late.answers["initialize"] = held
    stage = Stage(server("a"), late)
    await stage.open()
    sink = stage.send(asks(7, "tools/call", call(b"b__t")))
    stage.notify(cancelled(7))
    (await stage.link("b").next("initialize")).result(opened("tools"))
    await stage.told(1)
    assert await stage.names() == ["b__t"]
    assert stage.link("b").of("tools/call") == []
    assert sink.got == []
    assert stage.records.calls == [("b__t", "b", ErrorKind.CANCELLED, DiscoveryMethod.NAMED)]
    await stage.conversation.close()


async def test_a_request_that_is_offered_around_is_given_up_where_it_is(two):
    sink = two.send(asks(7, "vendor/ask", b'{"x":1.0}'))
    asked = await two.link("a").next("vendor/ask")
    two.notify(cancelled(7))
    await two.link("a").until(lambda: two.link("a").cancelled)
    assert two.link("a").cancelled == [(asked.message.id, None)]
    assert two.link("b").of("vendor/ask") == []
    assert sink.got == []


async def test_giving_up_what_is_not_there_is_nobody_s_business(two):
    two.notify(cancelled(99))
    two.notify(b'{"jsonrpc":"2.0","method":"notifications/cancelled"}')
    two.notify(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":true}}')
    assert [len(two.link(name).sent) for name in "ab"] == [1, 1]


# --- lists ---


async def test_lists_are_kept_until_a_server_says_that_they_changed(two):
    for _ in range(3):
        assert await two.names() == ["a__t", "a__u", "b__t"]
    assert [len(two.link(name).of("tools/list")) for name in "ab"] == [1, 1]
    two.servers["a"].answers["tools/list"] = tools("new")
    two.link("a").says(TOOLS_CHANGED)
    assert await two.told(1) == [TOOLS_CHANGED]
    assert await two.names() == ["a__new", "b__t"]
    assert [len(two.link(name).of("tools/list")) for name in "ab"] == [2, 1]
    assert two.records.shown == [("a__t", "a__u", "b__t"), ("a__new", "b__t")]


async def test_a_server_that_does_not_say_when_its_list_changes_is_asked_each_time():
    quiet = server("b", "t")
    quiet.answers["initialize"] = opened("tools", announces=False)
    stage = Stage(server("a"), quiet)
    await stage.open()
    assert await stage.names() == ["b__t"]
    quiet.answers["tools/list"] = tools("new")
    assert await stage.names() == ["b__new"]
    quiet.answers["tools/list"] = held
    assert await stage.names() == ["b__new"]
    (await stage.link("b").next("tools/list", 3)).result(tools("new"))
    assert await stage.names() == ["b__new"]
    quiet.answers["tools/list"] = tools("newer")
    assert await stage.names() == ["b__newer"]
    assert stage.channel.told == []
    await stage.conversation.close()


async def test_a_storm_of_changes_is_announced_once(two):
    for _ in range(1000):
        two.link("a").says(TOOLS_CHANGED)
        two.link("b").says(TOOLS_CHANGED)
    two.link("b").says(b'{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}')
    told = await two.told(2)
    assert sorted(told) == [b'{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}', TOOLS_CHANGED]
    assert two.link("a").of("tools/list") == []


async def test_a_list_that_changes_while_it_is_on_its_way_is_asked_for_again():
    moving = server("a", "t")
    moving.answers["tools/list"] = held
    stage = Stage(moving, server("b"), grace=2.0)
    await stage.open()
    sink = stage.send(asks(7, "tools/list"))
    first = await stage.link("a").next("tools/list")
    stage.link("a").says(TOOLS_CHANGED)
    first.result(tools("old"))
    (await stage.link("a").next("tools/list", 2)).result(tools("new"))
    assert (await sink.answer()).line == b'{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"a__new"}]}}'
    await stage.conversation.close()


async def test_a_list_that_never_stops_changing_is_given_as_it_is_and_asked_for_next_time():
    moving = server("a", "t")
    stage = Stage(moving, server("b"))
    await stage.open()

    def changing(asked):
        stage.link("a").says(TOOLS_CHANGED)
        asked.result(tools(f"t{len(stage.link('a').of('tools/list'))}"))

    moving.answers["tools/list"] = changing
    assert await stage.names() == ["a__t2"]
    assert await stage.names() == ["a__t4"]
    await stage.conversation.close()


async def test_a_slow_list_hides_nobody_and_is_announced_when_it_comes():
    slow = server("b", "t")
    slow.answers["tools/list"] = held
    stage = Stage(server("a", "t"), slow)
    await stage.open()
    assert await stage.names() == ["a__t"]
    (await stage.link("b").next("tools/list")).result(tools("t"))
    assert await stage.told(1) == [TOOLS_CHANGED]
    assert await stage.names() == ["a__t", "b__t"]
    await stage.conversation.close()


async def test_a_list_that_fails_is_neither_empty_nor_forgotten(two):
    assert await two.names() == ["a__t", "a__u", "b__t"]
    two.servers["b"].answers["tools/list"] = lambda asked: asked.error(-32603, "not now")
    two.link("b").says(TOOLS_CHANGED)
    assert await two.names() == ["a__t", "a__u", "b__t"]
    two.servers["b"].answers["tools/list"] = tools("new")
    assert await two.names() == ["a__t", "a__u", "b__new"]


async def test_a_list_that_fails_late_is_not_announced():
    failing = server("b", "t")
    failing.answers["tools/list"] = held
    stage = Stage(server("a", "t"), failing)
    await stage.open()
    assert await stage.names() == ["a__t"]
    listing = await stage.link("b").next("tools/list")
    failing.answers["tools/list"] = tools("t")
    listing.error(-32603)
    assert await stage.names() == ["a__t"]
    assert await stage.names() == ["a__t", "b__t"]
    assert stage.channel.told == []
    await stage.conversation.close()


async def test_while_nothing_is_known_everybody_waits_and_an_empty_list_is_not_made_up():
    one, other = server("a", "t"), server("b", "u")
    one.answers["initialize"] = other.answers["initialize"] = held
    stage = Stage(one, other)
    await stage.open()
    sink = stage.send(asks(7, "tools/list"))
    (await stage.link("a").next("initialize")).dies("a is down")
    (await stage.link("b").next("initialize")).result(opened("tools"))
    assert (await sink.answer()).line == b'{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"b__u"}]}}'
    await stage.conversation.close()


async def test_when_no_list_can_be_had_the_error_says_why_for_each_server():
    stage = Stage(
        server("a", initialize=lambda asked: asked.dies("a is down")),
        server("b", **{"tools/list": lambda asked: asked.error(-32603, "b is confused")}),
    )
    await stage.open()
    answer = await stage.ask("tools/list")
    assert jsonrpc.plain(answer.error) == {
        "code": -32000,
        "message": "no upstream has a list: 'a': a is down; 'b': b is confused",
    }
    assert stage.records.shown == []
    await stage.conversation.close()


async def test_an_answer_that_is_neither_result_nor_known_error_has_a_reason_too():
    odd = server("a")
    odd.answers["initialize"] = lambda asked: asked.reply.replied(
        jsonrpc.decode(b'{"id":%b,"error":5}' % asked.message.id)
    )
    odd.answers["server/discover"] = lambda asked: asked.error(-1)
    stage = Stage(odd, server("b", initialize=lambda asked: asked.dies("b is down")))
    await stage.open()
    answer = await stage.ask("tools/list")
    assert "'a': its answer was no result" in jsonrpc.plain(answer.error)["message"]
    await stage.conversation.close()


async def test_a_server_without_a_capability_is_not_asked_for_its_list():
    bare = server("b")
    bare.answers["initialize"] = opened("tools")
    stage = Stage(server("a", **{"prompts/list": listed("prompts", "name", "p")}), bare)
    await stage.open()
    answer = await stage.ask("prompts/list")
    assert bytes(answer.result) == b'{"prompts":[{"name":"a__p"}]}'
    assert stage.link("b").of("prompts/list") == []
    await stage.conversation.close()


async def test_all_pages_are_listed_as_one():
    paged = server("a")
    pages = {b"{}": tools("1", nextCursor="x"), b'{"cursor":"x"}': tools("2")}
    paged.answers["tools/list"] = lambda asked: asked.result(pages[bytes(asked.message.params)])
    stage = Stage(paged, server("b", "3"))
    await stage.open()
    assert await stage.names() == ["a__1", "a__2", "b__3"]
    await stage.conversation.close()


# --- what belongs to one server ---


async def test_resources_prompts_and_completion_go_to_their_server():
    one = server(
        "a",
        **{"resources/list": listed("resources", "uri", "note://a/1"), "prompts/list": listed("prompts", "name", "p")},
    )
    other = server(
        "b",
        **{
            "resources/list": listed("resources", "uri", "note://b/1"),
            "resources/templates/list": listed("resourceTemplates", "uriTemplate", "b://{x}"),
        },
    )
    stage = Stage(one, other)
    await stage.open()
    for number, (name, method, params, there) in enumerate(
        [
            ("b", "resources/read", b'{"uri":"note://b/1","x": 1}', None),
            ("b", "resources/subscribe", b'{"uri":"b://any"}', None),
            ("a", "prompts/get", b'{"name":"a__p","x": 1}', b'{"name":"p","x":1}'),
            (
                "a",
                "completion/complete",
                b'{"ref":{"type":"ref/prompt","name":"a__p"}}',
                b'{"ref":{"type":"ref/prompt","name":"p"}}',
            ),
            ("b", "completion/complete", b'{"ref":{"type":"ref/resource","uri":"b://{x}"}}', None),
        ],
        1,
    ):
        sink = stage.send(asks(number, method, params))
        count = 2 if number == 5 and name == "a" else 1
        asked = await stage.link(name).next(method, count)
        assert bytes(asked.message.params) == (there or params)
        asked.result()
        assert (await sink.answer()).id == b"%d" % number
    await stage.conversation.close()


async def test_a_task_is_asked_about_where_it_runs(two):
    sink = two.send(asks(7, "tools/call", call(b"b__t")))
    two.link("b").asked[-1].result(b'{"task":{"taskId":"t1","status":"working"}}')
    assert bytes((await sink.answer()).result) == b'{"task":{"taskId":"t1","status":"working"}}'
    two.send(asks(8, "tasks/get", b'{"taskId":"t1"}'))
    assert (
        two.link("b").asked[-1].message.line
        == b'{"jsonrpc":"2.0","id":8,"method":"tasks/get","params":{"taskId":"t1"}}'
    )
    assert jsonrpc.error_code(await two.ask("tasks/get", b'{"taskId":"t2"}')) == -32602
    assert two.link("a").of("tasks/get") == []


async def test_an_unknown_method_is_offered_until_a_server_knows_it(two):
    sink = two.send(asks(7, "vendor/ask", b'{"x":1.0}'))
    first = await two.link("a").next("vendor/ask")
    assert bytes(first.message.params) == b'{"x":1.0}'
    first.error(-32601)
    second = await two.link("b").next("vendor/ask")
    second.says(b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}')
    second.says(b'{"jsonrpc":"2.0","id":5,"method":"vendor/back"}')
    second.says(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a:9"}}')
    second.result(b'{"y":1.50}')
    assert (await sink.answer()).line == b'{"jsonrpc":"2.0","id":7,"result":{"y":1.50}}'
    assert sink.notes == [
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}',
        b'{"jsonrpc":"2.0","id":"b:1","method":"vendor/back"}',
    ]


async def test_a_method_that_no_server_knows_is_not_found(two):
    two.servers["a"].answers["vendor/ask"] = lambda asked: asked.dies()
    two.servers["b"].answers["vendor/ask"] = lambda asked: asked.error(-32601, "never heard")
    answer = await two.ask("vendor/ask")
    assert jsonrpc.plain(answer.error) == {"code": -32601, "message": "never heard"}


# --- log levels ---


def logging_server(name, answer):
    return Server(name, {"initialize": opened("logging"), "logging/setLevel": answer})


async def test_a_log_level_is_told_to_all_who_log_and_to_those_who_come_late():
    late = logging_server("c", b"{}")
    late.answers["initialize"] = held
    stage = Stage(server("a"), logging_server("b", b"{}"), late, logging_server("d", lambda asked: asked.error(-1)))
    await stage.open()
    answer = await stage.ask("logging/setLevel", b'{"level":"error"}')
    assert bytes(answer.result) == b"{}"
    assert stage.link("a").of("logging/setLevel") == []
    assert bytes(stage.link("b").asked[-1].message.params) == b'{"level":"error"}'
    (await stage.link("c").next("initialize")).result(opened("logging"))
    assert bytes((await stage.link("c").next("logging/setLevel")).message.params) == b'{"level":"error"}'
    await stage.conversation.close()


async def test_a_log_level_that_all_refuse_is_refused():
    stage = Stage(*(logging_server(name, lambda asked: asked.error(-32602, "what level?")) for name in "ab"))
    await stage.open()
    answer = await stage.ask("logging/setLevel", b'{"level":"loud"}')
    assert jsonrpc.plain(answer.error) == {"code": -32602, "message": "what level?"}
    await stage.conversation.close()


async def test_a_log_level_that_nobody_wants_is_taken():
    stage = Stage(server("a"), server("b"))
    await stage.open()
    assert bytes((await stage.ask("logging/setLevel", b'{"level":"error"}')).result) == b"{}"
    await stage.conversation.close()


async def test_nobody_waits_for_a_slow_server_to_take_a_log_level():
    stage = Stage(logging_server("a", held), logging_server("b", b"{}"))
    await stage.open()
    assert bytes((await stage.ask("logging/setLevel", b'{"level":"error"}')).result) == b"{}"
    await stage.conversation.close()


async def test_a_ping_is_answered_at_once(two):
    assert (await two.ask("ping")).result
    assert two.link("a").of("ping") == []


# --- what servers say and ask ---


async def test_questions_of_servers_get_ids_and_tokens_of_their_own_and_the_answers_come_home(two):
    sink = two.send(asks(7, "tools/call", call(b"a__t")))
    question = b'{"jsonrpc":"2.0","id":1,"method":"roots/list","params":{"_meta":{"progressToken":1},"x":1.0}}'
    two.link("a").asked[-1].says(question)
    two.link("b").says(question)
    assert sink.notes == [
        b'{"jsonrpc":"2.0","id":"a:1","method":"roots/list","params":{"_meta":{"progressToken":"a:1"},"x":1.0}}'
    ]
    assert two.channel.told == [
        b'{"jsonrpc":"2.0","id":"b:2","method":"roots/list","params":{"_meta":{"progressToken":"b:2"},"x":1.0}}'
    ]
    two.notify(b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"b:2","progress":1}}')
    two.notify(b'{"jsonrpc":"2.0","id":"b:2","result":{"roots":[ ]}}')
    two.notify(b'{"jsonrpc":"2.0","id":"a:1","error":{"code":-1,"message":"no"}}')
    two.notify(b'{"jsonrpc":"2.0","id":"a:1","result":{}}')
    two.notify(b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"b:2","progress":2}}')
    assert two.link("b").sent[1:] == [
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"roots":[ ]}}',
    ]
    assert two.link("a").sent[1:] == [b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}']


async def test_a_server_withdraws_its_own_question_and_no_other_server_s(two):
    two.link("a").says(b'{"jsonrpc":"2.0","id":1,"method":"roots/list"}')
    two.link("b").says(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}')
    two.link("b").says(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a:1"}}')
    two.link("a").says(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1.0,"reason":"x"}}')
    two.notify(b'{"jsonrpc":"2.0","id":"a:1","result":{}}')
    assert two.channel.told == [
        b'{"jsonrpc":"2.0","id":"a:1","method":"roots/list"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a:1","reason":"x"}}',
    ]
    assert len(two.link("a").sent) == 1


async def test_what_servers_say_waits_for_a_client_that_does_not_listen(two):
    two.channel.is_open = False
    two.link("a").says(b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x"}}')
    two.link("a").says(TOOLS_CHANGED)
    two.link("b").says(b'{"jsonrpc":"2.0","id":1,"method":"roots/list"}')
    sink = two.send(asks(7, "tools/call", call(b"b__t")))
    two.link("b").says(b'{"jsonrpc":"2.0","id":2,"method":"roots/list"}')
    assert sink.notes == [b'{"jsonrpc":"2.0","id":"b:2","method":"roots/list"}']
    await two.channel.until(lambda: len(two.conversation._held) == 3)
    two.channel.is_open = True
    two.conversation.listen(listening=True)
    assert two.channel.told == [
        b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x"}}',
        b'{"jsonrpc":"2.0","id":"b:1","method":"roots/list"}',
        TOOLS_CHANGED,
    ]


RIGLM_ASKS = ("initialize", "tools/list", "prompts/list", "resources/list", "resources/templates/list")
CLIENT_ANSWERS = ("roots/list", "sampling/createMessage", "elicitation/create", "vendor/unknown")


class Curious(Server):
    """Sends a request before it answers one, as a server with one thread does."""

    def __init__(self, own, method):
        lists = {"prompts/list": listed("prompts", "name"), "resources/list": listed("resources", "uri")}
        lists["resources/templates/list"] = listed("resourceTemplates", "uriTemplate")
        answers = {"initialize": opened("tools", "resources", "prompts"), "tools/list": tools("t"), **lists}
        super().__init__("curious", answers)
        self.question = asks(5, method).line
        self.result, self.answers[own] = self.answers[own], self.ask

    def ask(self, asked):
        asked.says(self.question)
        self.finishing = asyncio.ensure_future(self.finish(asked))

    async def finish(self, asked):
        answer = await self.link.until(lambda: [line for line in self.link.sent if b'"id":5' in line])
        self.said = jsonrpc.decode(answer[0])
        asked.result(self.result)


@pytest.mark.parametrize("is_listening", [True, False])
@pytest.mark.parametrize("method", CLIENT_ANSWERS)
@pytest.mark.parametrize("own", RIGLM_ASKS)
async def test_the_client_answers_a_server_that_asks_while_riglm_asks_it(own, method, is_listening):
    curious = Curious(own, method)
    stage = Stage(curious, Server("b", {"initialize": opened("tools"), "tools/list": tools("t")}), grace=5.0)
    stage.channel.is_open = is_listening
    request = asks(1, own, INITIALIZE) if own == "initialize" else asks(2, own)
    if own != "initialize":
        await stage.ask("initialize", INITIALIZE)
    sink = stage.send(request)
    (question,) = await (
        stage.channel.until(lambda: stage.channel.told) if is_listening else sink.until(lambda: sink.notes)
    )
    assert jsonrpc.decode(question).method == method
    stage.notify(jsonrpc.result(jsonrpc.decode(question).id, b'{"x":1.0}').line)
    assert (await sink.answer()).result
    assert bytes(curious.said.result) == b'{"x":1.0}'
    await stage.conversation.close()


@pytest.mark.parametrize("own", RIGLM_ASKS)
async def test_riglm_answers_a_server_that_pings_while_riglm_asks_it(own):
    curious = Curious(own, "ping")
    stage = Stage(curious, Server("b", {"initialize": opened("tools"), "tools/list": tools("t")}), grace=5.0)
    await stage.open()
    if own != "initialize":
        assert (await stage.ask(own)).result
    assert bytes(curious.said.result) == b"{}"
    assert stage.channel.told == []
    await stage.conversation.close()


async def test_other_notifications_of_the_client_reach_every_open_server():
    closed = server("b")
    closed.answers["initialize"] = held
    stage = Stage(server("a"), closed)
    await stage.open()
    line = b'{"jsonrpc":"2.0","method":"notifications/roots/list_changed","x":1.0}'
    stage.notify(line)
    stage.notify(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    assert stage.link("a").sent[1:] == [line]
    assert stage.link("b").sent == []
    await stage.conversation.close()


async def test_servers_learn_whether_the_client_listens(two):
    two.conversation.listen(listening=False)
    assert [two.link(name).listening for name in "ab"] == [[True, False], [True, False]]


async def test_a_lost_stream_cannot_be_taken_up(two):
    ends = []

    class Stream:
        def ended(self):
            ends.append(1)

    two.conversation.resume(b"e1", Stream())
    assert ends == [1]


# --- the end ---


async def test_closing_gives_up_everything_once_and_leaves_nothing():
    before = asyncio.all_tasks()
    slow = server("b", "t")
    slow.answers["tools/list"] = slow.answers["resources/list"] = held
    stage = Stage(server("a", "t"), slow, logging_server("c", held), server("d", initialize=held), grace=5.0)
    opening = stage.send(asks(1, "initialize", INITIALIZE))
    await stage.link("d").next("initialize")
    sinks = [
        opening,
        stage.send(asks(2, "tools/list")),
        stage.send(asks(3, "tools/call", call(b"a__t"))),
        stage.send(asks(4, "vendor/ask")),
        stage.send(asks(5, "logging/setLevel", b'{"level":"info"}')),
        stage.send(asks(6, "resources/read", b'{"uri":"x"}')),
        stage.send(asks(8, "tools/call", call(b"d__t"))),
    ]
    await stage.link("b").next("tools/list")
    await stage.link("c").next("logging/setLevel")
    stage.link("a").says(TOOLS_CHANGED)
    await stage.conversation.close()
    for name in "abcd":
        assert stage.link(name).closed == 1
        for asked in stage.link(name).asked:
            asked.result()
    assert [sink.got for sink in sinks] == [[]] * len(sinks)
    assert stage.channel.told == []
    assert (stage.conversation._open, stage.conversation._links, len(stage.conversation._workers)) == ({}, {}, 0)
    assert asyncio.all_tasks() == before
    assert sorted(call[0] for call in stage.records.calls) == ["a__t", "d__t"]
    assert {call[2] for call in stage.records.calls} == {ErrorKind.CANCELLED}
    assert stage.records.closed == list(stage.records.opened)
    assert len(stage.sessions) == 0


async def test_a_client_that_never_asked_anything_leaves_no_session():
    stage = Stage(server("a"), server("b"))
    await stage.conversation.close()
    assert stage.records.of(Session) == []


async def test_what_fails_inside_becomes_an_error_of_the_request(two, monkeypatch, caplog):
    monkeypatch.setattr(two.conversation._upstreams, "joined", None)
    answer = await two.ask("tools/list")
    assert jsonrpc.plain(answer.error)["message"] == "Internal error in riglm: its log says more"
    assert caplog.records[-1].exc_info


async def test_two_clients_share_no_ids_answers_or_notices():
    stage = Stage(server("a", "t"), server("b", "t"))
    await stage.open()
    mine = stage.servers["a"].link
    channel = Channel()
    other = stage.converse(channel)
    sink = Sink()
    other.received(asks(1, "initialize", INITIALIZE), sink)
    await sink.answer()
    theirs = stage.servers["a"].link
    assert theirs is not mine
    first, second = stage.send(asks(7, "tools/call", call(b"a__t", b'"mine"'))), Sink()
    other.received(asks(7, "tools/call", call(b"a__t", b'"theirs"')), second)
    theirs.asked[-1].result(b'"theirs"')
    mine.asked[-1].result(b'"mine"')
    theirs.says(b'{"jsonrpc":"2.0","id":1,"method":"roots/list"}')
    stage.notify(b'{"jsonrpc":"2.0","id":"a:1","result":{}}')
    assert bytes(first.answers[0].result) == b'"mine"'
    assert bytes(second.answers[0].result) == b'"theirs"'
    assert (stage.channel.told, len(channel.told)) == ([], 1)
    assert (len(mine.sent), len(theirs.sent)) == (1, 1)
    await stage.conversation.close()
    await other.close()
