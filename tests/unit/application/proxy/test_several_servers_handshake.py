"""Several servers as one, for a client of the handshake era."""

import pytest

from riglm.application.proxy.proxy_service import ProxyService
from riglm.domain import jsonrpc
from riglm.domain.invocation import DiscoveryMethod, ErrorKind
from riglm.domain.session import Transport
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
        self.proxy = ProxyService(self.parts, servers, naming, is_alone=False)
        self.channel = Channel()
        self.conversation = self.converse(self.channel)
        self._count = 100

    def converse(self, channel):
        caller = Caller(transport=Transport.HTTP)
        return self.proxy.connect(caller, channel)

    def send(self, message):
        sink = Sink()
        self.conversation.receive(message, sink)
        return sink

    def notify(self, line):
        self.conversation.receive(jsonrpc.decode(line), Sink())

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


async def test_a_server_that_refuses_the_handshake_and_speaks_nothing_else_is_left_out():
    old = Server(
        "b", {"initialize": lambda asked: asked.error(-32602), "server/discover": lambda asked: asked.error(-1)}
    )
    stage = Stage(server("a", "t"), old)
    await stage.open()
    assert await stage.names() == ["a__t"]
    await stage.conversation.close()


# --- calls ---


async def test_an_unknown_tool_is_looked_for_and_refused(two):
    answer = await two.ask("tools/call", call(b"nobody"))
    assert answer.line.endswith(b'"error":{"code":-32602,"message":"Unknown tool: nobody"}}')
    assert two.records.calls == [("nobody", "", ErrorKind.PROTOCOL, DiscoveryMethod.NAMED)]
    assert two.link("a").methods == two.link("b").methods == ["initialize", "tools/list"]


# --- giving up ---


def cancelled(number):
    return b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d,"reason":"x"}}' % number


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


async def test_a_list_that_fails_is_neither_empty_nor_forgotten(two):
    assert await two.names() == ["a__t", "a__u", "b__t"]
    two.servers["b"].answers["tools/list"] = lambda asked: asked.error(-32603, "not now")
    two.link("b").says(TOOLS_CHANGED)
    assert await two.names() == ["a__t", "a__u", "b__t"]
    two.servers["b"].answers["tools/list"] = tools("new")
    assert await two.names() == ["a__t", "a__u", "b__new"]


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


async def test_a_server_without_a_capability_is_not_asked_for_its_list():
    bare = server("b")
    bare.answers["initialize"] = opened("tools")
    stage = Stage(server("a", **{"prompts/list": listed("prompts", "name", "p")}), bare)
    await stage.open()
    answer = await stage.ask("prompts/list")
    assert bytes(answer.result) == b'{"prompts":[{"name":"a__p"}]}'
    assert stage.link("b").of("prompts/list") == []
    await stage.conversation.close()


# --- what belongs to one server ---


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


# --- what servers say and ask ---


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


# --- the end ---


async def test_what_fails_inside_becomes_an_error_of_the_request(two, monkeypatch, caplog):
    monkeypatch.setattr(two.conversation.upstreams, "joined", None)
    answer = await two.ask("tools/list")
    assert jsonrpc.plain(answer.error)["message"] == "Internal error in riglm: its log says more"
    assert caplog.records[-1].exc_info


async def test_all_lists_of_a_server_that_was_restarted_are_requested_again(two, monkeypatch):
    lists = {"prompts/list": listed("prompts", "name", "p"), "resources/list": listed("resources", "uri", "u:1")}
    for each in two.servers.values():
        each.answers.update(lists)
    for method in (*lists, *lists):
        await two.ask(method)
    before = len(two.link("a").asked)
    monkeypatch.setattr(type(two.link("a")), "tools_version", 1)
    for method in lists:
        await two.ask(method)
    assert [asked.message.method for asked in two.link("a").asked[before:]] == [*lists]


async def test_progress_without_a_request_may_be_meant_for_that_of_another_server_and_is_dropped(two):
    two.link("a").says(b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":5,"progress":1}}')
    two.link("a").says(b'{"jsonrpc":"2.0","method":"notifications/vendor"}')
    assert [jsonrpc.decode(line).method for line in await two.told(1)] == ["notifications/vendor"]


async def test_a_response_to_a_server_that_ended_does_not_reach_its_next_process(two):
    two.link("a").says(b'{"jsonrpc":"2.0","id":1,"method":"roots/list"}')
    asked = jsonrpc.decode((await two.told(1))[0])
    two.link("a").message_handler.disconnected(two.link("a"))
    notice = jsonrpc.decode((await two.told(2))[1])
    assert (notice.method, bytes(jsonrpc.members(notice.params)["requestId"])) == ("notifications/cancelled", asked.id)
    before = list(two.link("a").sent)
    two.notify(b'{"jsonrpc":"2.0","id":%b,"result":{"roots":[]}}' % asked.id)
    assert two.link("a").sent == before
