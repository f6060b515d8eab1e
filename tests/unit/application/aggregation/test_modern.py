"""Several servers as one, for clients of the modern era."""

import asyncio
import time

import pytest

from riglm.application.aggregation import merged_subscription, upstream_lists
from riglm.application.aggregation.merged_lists import MergedListCache
from riglm.application.aggregation.modern_handler import MultiServerModernHandler
from riglm.domain import jsonrpc, request_params
from riglm.domain.invocation import DiscoveryMethod, ErrorKind
from riglm.domain.session import ProtocolEra, Transport
from riglm.ports.downstream import Caller
from tests.unit.application.fakes import Server, Sink, World, asks, listed, tools
from tests.waiting import WAIT_SECONDS

META = (
    b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    b'"io.modelcontextprotocol/clientInfo":{"name":"c"},"io.modelcontextprotocol/clientCapabilities":{}}'
)
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
TOOLS_CHANGED = "notifications/tools/list_changed"
FRESH = {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "public"}
DISCOVERED = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 1, "cacheScope": "public"}


def server(name, *names, modern=True, **more):
    """A server with tools, known to speak the modern era."""
    discovered = jsonrpc.encode({**DISCOVERED, "capabilities": {"tools": {}}})
    answers = {"server/discover": discovered, "tools/list": tools(*names, **FRESH), **more}
    return Server(name, answers, **({"modern": modern} if modern is not None else {}))


def held(asked):
    """No answer for now."""


class Stage(World):
    """Clients in front of servers."""

    def __init__(self, *servers, naming="prefix", **more):
        super().__init__(**more)
        self.servers = {server.spec.name: server for server in servers}
        self.modern = MultiServerModernHandler(self.services, servers, MergedListCache(naming))
        self._count = 100

    def send(self, number, method, params=b"", principal="anna"):
        message = asks(number, method, b"{%b%b}" % (params + b"," if params else b"", META))
        sink = Sink()
        caller = Caller(transport=Transport.HTTP, principal=principal)
        envelope = request_params.envelope(message)
        return sink, self.modern.received(message, envelope, sink, caller, {b"mcp-name": b"theirs"})

    async def ask(self, method, params=b""):
        self._count += 1
        sink, _ = self.send(self._count, method, params)
        return await sink.answer()

    async def names(self):
        answer = await self.ask("tools/list")
        return [jsonrpc.plain(tool)["name"] for tool in jsonrpc.elements(jsonrpc.members(answer.result)["tools"])]

    def link(self, name):
        return self.servers[name].shared


@pytest.fixture
async def two():
    stage = Stage(server("a", "t", "u"), server("b", "t"))
    yield stage
    await stage.modern.close()


def call(name, more=b""):
    return b'"name":"%b","arguments":{"n" : 1.0}%b' % (name, more)


# --- discovery and the era ---


async def test_what_all_servers_can_do_is_said_as_one(two):
    two.servers["b"].answers["server/discover"] = jsonrpc.encode(
        {**DISCOVERED, "capabilities": {"resources": {"subscribe": True}}, "instructions": "Be kind."}
    )
    found = jsonrpc.plain((await two.ask("server/discover")).result)
    assert found["capabilities"] == {"tools": {"listChanged": True}, "resources": {"subscribe": True}}
    assert found["supportedVersions"] == ["2026-07-28"]
    assert found["instructions"] == "# b\nBe kind."
    assert (found["resultType"], found["ttlMs"], found["cacheScope"]) == ("complete", 0, "private")
    (asked,) = two.link("a").asked
    assert bytes(asked.message.params) == b"{%b}" % META


@pytest.mark.parametrize("answer", [held, lambda asked: asked.dies()], ids=["slow", "down"])
async def test_a_server_that_does_not_say_what_it_can_may_have_anything(two, answer):
    two.servers["b"].answers["server/discover"] = answer
    found = jsonrpc.plain((await two.ask("server/discover")).result)
    changing = {"listChanged": True}
    assert found["capabilities"] == {"tools": changing, "prompts": changing, "resources": changing}
    assert "instructions" not in found


async def test_one_server_of_the_handshake_sends_all_clients_to_it():
    stage = Stage(server("a"), server("b", modern=False))
    sink, _ = stage.send(1, "tools/list")
    await sink.answer()
    ((_, line, status, _),) = sink.got
    assert status == 400
    assert b'"code":-32022' in line
    assert b'"requested":"2026-07-28"' in line
    assert stage.link("a").asked == []


async def test_the_era_of_every_server_is_found_out_once():
    stage = Stage(server("a", "t", modern=None), server("b", "u", modern=None))
    assert await stage.names() == ["a__t", "b__u"]
    assert await stage.names() == ["a__t", "b__u"]
    assert [server.eras for server in stage.servers.values()] == [{ProtocolEra.MODERN: True}] * 2
    assert [stage.link(name).methods.count("server/discover") for name in "ab"] == [1, 1]
    await stage.modern.close()


async def test_all_servers_are_asked_for_their_era_at_once_and_requests_wait_for_all():
    stage = Stage(*(server(name, "t", modern=None, **{"server/discover": held}) for name in "ab"), grace=5.0)
    sinks = [stage.send(number, "tools/list")[0] for number in (1, 2)]
    for name in "ab":
        asked = await stage.link(name).next("server/discover")
        assert [sink.got for sink in sinks] == [[], []]
        asked.result(jsonrpc.encode({"supportedVersions": ["2026-07-28"]}))
    for sink in sinks:
        assert (await sink.answer()).result
    assert [stage.link(name).methods for name in "ab"] == [["server/discover", "tools/list"]] * 2
    await stage.modern.close()


async def test_requests_wait_once_for_a_server_that_does_not_say_its_era():
    stage = Stage(server("a", "t"), server("b", modern=None, **{"server/discover": held}), grace=3600.0)
    first, _ = stage.send(1, "tools/list")
    await stage.link("b").next("server/discover")
    assert first.got == []
    stage.modern._era_negotiation._asked_at["b"] -= 3600.0
    async with asyncio.timeout(WAIT_SECONDS):
        assert await stage.names() == ["a__t"]
    await stage.modern.close()


async def test_a_server_that_cannot_be_reached_does_not_count(monkeypatch):
    down = server("b", "u", modern=None, **{"server/discover": lambda asked: asked.dies()})
    down.answers["tools/list"] = lambda asked: asked.dies()
    stage = Stage(server("a", "t"), down)
    assert await stage.names() == ["a__t"]
    assert await stage.names() == ["a__t"]
    assert stage.link("b").methods.count("server/discover") == 1
    monkeypatch.setattr(merged_subscription, "RETRY_SECONDS", -1.0)
    down.answers["server/discover"] = lambda asked: asked.error(-32601)
    assert await stage.names() == ["a__t"]
    await stage.modern.close()


async def test_a_server_that_does_not_answer_sends_who_asks_to_the_handshake_until_it_does():
    slow = server("b", modern=None, **{"server/discover": held, "tools/list": held})
    stage = Stage(server("a", "t"), slow)
    assert jsonrpc.error_code(await stage.ask("server/discover")) == -32022
    assert await stage.names() == ["a__t"], "who speaks the era without asking is served by those that answer"
    assert jsonrpc.error_code(await stage.ask("server/discover")) == -32022
    (await stage.link("b").next("server/discover")).result(jsonrpc.encode({"supportedVersions": ["2026-07-28"]}))
    assert (await stage.ask("server/discover")).result
    await stage.modern.close()


async def test_a_server_that_never_answers_counts_no_longer_once_its_time_is_over(monkeypatch):
    hung = server("b", modern=None, **{"server/discover": held, "tools/list": held})
    stage = Stage(server("a", "t"), hung)
    assert jsonrpc.error_code(await stage.ask("server/discover")) == -32022
    (await stage.link("b").next("server/discover")).reply.failed(ErrorKind.TIMEOUT, "no answer")
    monkeypatch.setattr(merged_subscription, "RETRY_SECONDS", -1.0)
    for _ in range(2):
        assert (await stage.ask("server/discover")).result
    await stage.modern.close()


async def test_a_server_that_turns_out_to_lack_the_era_is_left_out(two, caplog):
    assert await two.names() == ["a__t", "a__u", "b__t"]
    two.servers["b"].learned(ProtocolEra.MODERN, supported=False)
    for _ in range(2):
        answer = await two.ask("tools/call", call(b"b__t"))
        assert jsonrpc.plain(answer.error)["message"] == "upstream 'b' supports only the handshake era"
    assert [record.upstream for record in caplog.records] == ["b"]
    two.servers["a"].learned(ProtocolEra.MODERN, supported=False)
    assert jsonrpc.error_code(await two.ask("subscriptions/listen")) == -32000
    assert (await two.ask("server/discover")).result


# --- lists ---


async def test_lists_are_joined_and_kept_for_as_long_as_each_server_says(two):
    two.servers["b"].answers["tools/list"] = tools("t", ttlMs=0)
    answer = await two.ask("tools/list")
    assert bytes(answer.result) == (
        b'{"tools":[{"name":"a__t"},{"name":"a__u"},{"name":"b__t"}],'
        b'"resultType":"complete","ttlMs":0,"cacheScope":"private"}'
    )
    await two.names()
    assert [len(two.link(name).asked) for name in "ab"] == [1, 2]
    assert bytes(two.link("a").asked[0].message.params) == b"{%b}" % META
    assert two.records.shown == [("a__t", "a__u", "b__t")]


@pytest.mark.parametrize(
    ("ttl", "asked"),
    [
        (b"60000", 1),
        (b"6e4", 1),
        (b"1" + b"0" * 400, 1),
        (b"1e300", 1),
        (b"0", 2),
        (b"-5", 2),
        (b'"60000"', 2),
        (b"null", 2),
    ],
    ids=["whole", "broken", "huge", "large", "none", "negative", "text", "null"],
)
async def test_only_a_sensible_time_to_live_counts(two, ttl, asked):
    two.servers["a"].answers["tools/list"] = b'{"tools":[],"ttlMs":%b}' % ttl
    await two.names()
    await two.names()
    assert len(two.link("a").asked) == asked


async def test_no_list_is_kept_for_longer_than_a_day(two, monkeypatch):
    monkeypatch.setattr(upstream_lists, "MAX_TTL_SECONDS", 0.0)
    await two.names()
    await two.names()
    assert len(two.link("a").asked) == 2


async def test_many_clients_that_ask_at_once_make_one_request(two):
    two.servers["a"].answers["tools/list"] = held
    sinks = [two.send(1, "tools/list", principal=f"p{number}")[0] for number in range(20)]
    (await two.link("a").next("tools/list")).result(tools("t", **FRESH))
    for sink in sinks:
        assert jsonrpc.members((await sink.answer()).result)["tools"]
    assert len(two.link("a").asked) == 1


async def test_a_slow_list_hides_nobody_and_nobody_waits_for_it_twice_however_much_later(monkeypatch):
    slow = server("b", "t", **{"tools/list": held})
    stage = Stage(server("a", "t"), slow, grace=0.05)
    assert await stage.names() == ["a__t"]
    monkeypatch.setattr("time.monotonic", lambda real=time.monotonic: real() + 3600.0)
    assert await stage.names() == ["a__t"]
    (await stage.link("b").next("tools/list")).result(tools("t", **FRESH))
    slow.answers["tools/list"] = tools("t", **FRESH)
    async with asyncio.timeout(WAIT_SECONDS):
        while await stage.names() != ["a__t", "b__t"]:
            pass
    await stage.modern.close()


async def test_a_list_that_fails_is_neither_empty_nor_forgotten(two, monkeypatch):
    monkeypatch.setattr(upstream_lists, "MAX_TTL_SECONDS", 0.0)
    assert await two.names() == ["a__t", "a__u", "b__t"]
    two.servers["b"].answers["tools/list"] = lambda asked: asked.error(-32603)
    assert await two.names() == ["a__t", "a__u", "b__t"]
    two.servers["b"].answers["tools/list"] = lambda asked: asked.error(-32601)
    assert await two.names() == ["a__t", "a__u"]


async def test_while_nothing_is_known_everybody_waits(two):
    two.servers["a"].answers["tools/list"] = two.servers["b"].answers["tools/list"] = held
    sink, _ = two.send(1, "tools/list")
    (await two.link("a").next("tools/list")).dies()
    (await two.link("b").next("tools/list")).result(tools("t"))
    assert b'"name":"b__t"' in (await sink.answer()).line


async def test_when_no_list_can_be_had_it_is_an_error(two):
    for each in two.servers.values():
        each.answers["tools/list"] = lambda asked: asked.dies()
    answer = await two.ask("tools/list")
    assert jsonrpc.plain(answer.error) == {"code": -32000, "message": "no upstream has a list: 'a', 'b' did not answer"}


async def test_a_list_that_changes_while_it_is_on_its_way_is_asked_for_again(two):
    two.servers["a"].answers["tools/list"] = held
    sink, _ = two.send(1, "tools/list")
    first = await two.link("a").next("tools/list")
    two.modern._lists.forget("a", ("tools/list",))
    first.result(tools("old", **FRESH))
    (await two.link("a").next("tools/list", 2)).result(tools("new", **FRESH))
    assert b'"name":"a__new"' in (await sink.answer()).line
    await two.names()
    assert len(two.link("a").asked) == 2


async def test_a_list_that_never_stops_changing_is_not_kept(two):
    def changing(asked):
        two.modern._lists.forget("a", ("tools/list",))
        asked.result(tools("t", **FRESH))

    two.servers["a"].answers["tools/list"] = changing
    await two.names()
    await two.names()
    assert len(two.link("a").asked) == 4


async def test_other_lists_are_joined_too(two):
    two.servers["a"].answers["resources/list"] = listed("resources", "uri", "note://1")
    two.servers["b"].answers["resources/list"] = lambda asked: asked.error(-32601)
    answer = await two.ask("resources/list")
    assert jsonrpc.plain(jsonrpc.members(answer.result)["resources"]) == [{"uri": "note://1"}]


# --- calls ---


async def test_a_call_goes_to_its_server_under_its_own_name_and_comes_back_as_it_is(two):
    await two.names()
    sink, _ = two.send(7, "tools/call", call(b"b__t"))
    asked = await two.link("b").next("tools/call")
    assert asked.message.line == (
        b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","arguments":{"n" : 1.0},%b}}' % META
    )
    assert asked.reply.headers == {}
    asked.says(b'{"method":"notifications/progress","x": 1.0}')
    asked.reply.replied(jsonrpc.decode(b'{"id":7,"result":{"content": [ ]},"vendor":1.50}'))
    assert [each[1] for each in sink.got] == [
        b'{"method":"notifications/progress","x": 1.0}',
        b'{"id":7,"result":{"content": [ ]},"vendor":1.50}',
    ]
    assert two.link("a").of("tools/call") == []
    assert two.records.calls == [("b__t", "b", None, DiscoveryMethod.LISTED)]
    assert two.modern._owners == {}


async def test_a_first_call_waits_for_the_list_of_its_server_and_no_other(two):
    two.servers["b"].answers["tools/list"] = held
    sink, _ = two.send(7, "tools/call", call(b"a__t"))
    (await two.link("a").next("tools/call")).result()
    await sink.answer()
    assert two.link("a").methods == ["tools/list", "tools/call"]
    assert two.link("b").asked == []
    assert two.modern.input_schema("a__t") is None


async def test_a_schema_is_known_by_the_name_that_clients_use(two):
    two.servers["a"].answers["tools/list"] = b'{"tools":[{"name":"t","inputSchema":{"x": 1}}]}'
    await two.names()
    assert two.modern.input_schema("a__t") == b'{"x": 1}'
    assert two.modern.input_schema("t") is None


async def test_a_server_that_has_no_list_still_gets_its_calls(two):
    two.servers["a"].answers["tools/list"] = lambda asked: asked.dies()
    sink, _ = two.send(7, "tools/call", call(b"a__hidden"))
    (await two.link("a").next("tools/call")).result()
    assert (await sink.answer()).result
    assert two.records.calls == [("a__hidden", "a", None, DiscoveryMethod.NAMED)]


async def test_an_unknown_tool_is_looked_for_and_refused(two):
    answer = await two.ask("tools/call", call(b"nobody"))
    assert jsonrpc.plain(answer.error) == {"code": -32602, "message": "Unknown tool: nobody"}
    assert two.records.calls == [("nobody", "", ErrorKind.PROTOCOL, DiscoveryMethod.NAMED)]


async def test_a_name_that_only_a_list_tells_is_found_in_it():
    stage = Stage(server("a", "t"), server("b", "u"), naming="none")
    sink, _ = stage.send(7, "tools/call", call(b"u"))
    (await stage.link("b").next("tools/call")).result()
    assert (await sink.answer()).result
    await stage.modern.close()


async def test_an_unknown_method_is_offered_until_a_server_knows_it(two):
    two.servers["a"].answers["vendor/x"] = lambda asked: asked.error(-32601)

    def answer(asked):
        asked.says(b'{"method":"notifications/message"}')
        asked.result(b'{"y":1.50}')

    two.servers["b"].answers["vendor/x"] = answer
    assert bytes((await two.ask("vendor/x")).result) == b'{"y":1.50}'


async def test_input_that_is_required_comes_from_and_goes_to_the_server_that_asked(two):
    asked_for = b'{"resultType":"input_required","inputRequests":{"k":{"method":"roots/list"}},"requestState":"s"}'
    two.servers["b"].answers["tools/call"] = asked_for
    assert bytes((await two.ask("tools/call", call(b"b__t"))).result) == asked_for
    await two.ask("tools/call", call(b"b__t", b',"inputResponses":{"k":{"roots":[ ]}},"requestState":"s"'))
    assert b'"inputResponses":{"k":{"roots":[ ]}},"requestState":"s"' in two.link("b").asked[-1].message.line


# --- giving up ---


async def test_a_request_that_is_given_up_is_given_up_where_it_is_and_answered_no_more(two):
    await two.names()
    sink, in_flight = two.send(7, "tools/call", call(b"a__t"))
    asked = await two.link("a").next("tools/call")
    notice = jsonrpc.notification("notifications/cancelled", b'{"requestId":7}')
    two.modern.cancel(in_flight, notice)
    two.modern.cancel(in_flight, notice)
    asked.result()
    assert two.link("a").cancelled == [(b"7", notice.line)]
    assert sink.got == []
    assert two.records.calls == [("a__t", "a", ErrorKind.CANCELLED, DiscoveryMethod.LISTED)]


async def test_a_request_that_is_given_up_at_once_reaches_no_server(two):
    sink, in_flight = two.send(7, "tools/call", call(b"a__t"))
    two.modern.cancel(in_flight)
    await two.names()
    assert two.link("a").of("tools/call") == []
    assert sink.got == []


async def test_a_call_that_was_given_up_while_its_server_was_looked_for_is_never_made(two):
    two.servers["a"].answers["tools/list"] = held
    sink, in_flight = two.send(7, "tools/call", call(b"a__t"))
    listing = await two.link("a").next("tools/list")
    two.modern.cancel(in_flight)
    listing.result(tools("t", **FRESH))
    assert await two.names() == ["a__t", "b__t"]
    assert two.link("a").of("tools/call") == []
    assert sink.got == []


async def test_a_cancellation_of_one_client_reaches_no_server_by_its_number(two):
    two.modern.handle_notification(jsonrpc.notification("notifications/cancelled", b'{"requestId":7}'))
    two.modern.handle_notification(jsonrpc.notification("vendor/told", b'{"x":1.0}'))
    for name in "ab":
        assert two.link(name).sent == [b'{"jsonrpc":"2.0","method":"vendor/told","params":{"x":1.0}}']


async def test_riglm_refuses_requests_of_servers_in_the_modern_era_in_place_of_a_client(two):
    two.link("a").says(b'{"jsonrpc":"2.0","id":1,"method":"roots/list"}')
    two.link("a").says(b'{"jsonrpc":"2.0","method":"notifications/message"}')
    (answer,) = two.link("a").sent
    assert jsonrpc.error_code(jsonrpc.decode(answer)) == jsonrpc.METHOD_NOT_FOUND


async def test_closing_gives_up_everything_and_leaves_nothing():
    before = asyncio.all_tasks()
    stage = Stage(server("a", "t", **{"tools/list": held}), server("b"), grace=5.0)
    sinks = [
        stage.send(number, method, params)[0]
        for number, (method, params) in enumerate(
            [("tools/list", b""), ("tools/call", call(b"a__t")), ("vendor/x", b""), ("subscriptions/listen", b"")]
        )
    ]
    await stage.link("a").next("tools/list")
    await stage.link("a").next("subscriptions/listen")
    await stage.modern.close()
    assert asyncio.all_tasks() == before
    assert [sink.got for sink in sinks] == [[]] * 4


# --- subscriptions ---


def note(method, server_id, more=b""):
    return b'{"jsonrpc":"2.0","method":"%b","params":{"_meta":{"%b":%b}%b}}' % (
        method.encode(),
        SUBSCRIPTION.encode(),
        server_id,
        more,
    )


def acknowledge(asked, granted):
    asked.says(note(ACKNOWLEDGED, asked.message.id, b',"notifications":%b' % granted))


async def listening(stage, wanted=b'{"toolsListChanged":true}', grants=None):
    sink, in_flight = stage.send(9, "subscriptions/listen", b'"notifications":%b' % wanted)
    for name in stage.servers:
        asked = await stage.link(name).next("subscriptions/listen")
        if grants is None or name in grants:
            acknowledge(asked, (grants or {}).get(name, wanted))
    await sink.until(lambda: sink.notes)
    return sink, in_flight


async def test_a_subscription_is_acknowledged_once_with_what_all_grant(two):
    sink, _ = await listening(
        two,
        b'{"toolsListChanged":true,"resourceSubscriptions":["x"]}',
        {"a": b'{"toolsListChanged":true}', "b": b'{"toolsListChanged":false,"resourceSubscriptions":["x"]}'},
    )
    assert sink.notes == [
        b'{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":'
        b'{"toolsListChanged":true,"resourceSubscriptions":["x"]},"_meta":{"%b":9}}}' % SUBSCRIPTION.encode()
    ]


async def test_changes_of_lists_are_told_once_and_the_lists_asked_for_again(two):
    assert await two.names() == ["a__t", "a__u", "b__t"]
    sink, _ = await listening(two)
    two.servers["b"].answers["tools/list"] = tools("new", **FRESH)
    for name in ("a", "b", "b"):
        asked = two.link(name).of("subscriptions/listen")[0]
        for _ in range(100):
            asked.says(note(TOOLS_CHANGED, asked.message.id))
    await sink.until(lambda: len(sink.notes) > 1)
    assert sink.notes[1:] == [note(TOOLS_CHANGED, b"9")]
    assert await two.names() == ["a__t", "a__u", "b__new"]


async def test_what_else_is_told_passes_under_the_client_s_subscription(two):
    sink, _ = await listening(two)
    asked = two.link("a").of("subscriptions/listen")[0]
    asked.says(note("notifications/resources/updated", asked.message.id, b',"uri":"x","y":1.0'))
    assert sink.notes[1:] == [note("notifications/resources/updated", b"9", b',"uri":"x","y":1.0')]


async def test_a_slow_server_does_not_hold_up_the_acknowledgement_and_is_caught_up_with(two):
    sink, _ = await listening(two, grants={"a": b'{"toolsListChanged":true}'})
    assert b'"notifications":{"toolsListChanged":true}' in sink.notes[0]
    acknowledge(two.link("b").of("subscriptions/listen")[0], b'{"toolsListChanged":true,"resourceSubscriptions":["x"]}')
    await sink.until(lambda: len(sink.notes) > 2)
    assert sink.notes[1:] == [
        note("notifications/resources/updated", b"9").replace(b'{"_meta"', b'{"uri":"x","_meta"'),
        note(TOOLS_CHANGED, b"9"),
    ]


async def test_a_server_that_goes_away_is_listened_to_again_and_caught_up_with(two, monkeypatch):
    monkeypatch.setattr(merged_subscription, "INITIAL_BACKOFF", 0.0)
    sink, _ = await listening(two)
    two.link("b").of("subscriptions/listen")[0].dies()
    second = await two.link("b").next("subscriptions/listen", 2)
    acknowledge(second, b'{"toolsListChanged":true}')
    await sink.until(lambda: len(sink.notes) > 1)
    assert sink.notes[1:] == [note(TOOLS_CHANGED, b"9")]
    second.result(b"{}")
    acknowledge(await two.link("b").next("subscriptions/listen", 3), b"[]")
    assert sink.answers == []


async def test_a_subscription_that_one_server_refuses_goes_on_with_the_others(two):
    two.servers["b"].answers["subscriptions/listen"] = lambda asked: asked.error(-32601)
    sink, _ = await listening(two, grants={"a": b'{"toolsListChanged":true}'})
    asked = two.link("a").of("subscriptions/listen")[0]
    asked.says(note("vendor/told", asked.message.id))
    assert sink.notes[1:] == [note("vendor/told", b"9")]
    assert sink.answers == []
    asked.error(-32602, "enough")
    answer = await sink.answer()
    assert (answer.id, answer.error is not None) == (b"9", True)


async def test_a_subscription_that_all_refuse_is_refused(two):
    for each in two.servers.values():
        each.answers["subscriptions/listen"] = lambda asked: asked.error(-32601, "no listening here")
    sink, _ = two.send(9, "subscriptions/listen")
    assert jsonrpc.plain((await sink.answer()).error) == {"code": -32601, "message": "no listening here"}
    assert sink.notes == []


async def test_a_server_only_hears_of_resources_that_may_be_its_own(two):
    two.servers["a"].answers["resources/list"] = listed("resources", "uri", "note://a", **FRESH)
    two.servers["b"].answers["resources/list"] = listed("resources", "uri", "note://b", **FRESH)
    await two.ask("resources/list")
    await listening(two, b'{"resourceSubscriptions":["note://a","note://b","who://"],"x":1.0}')
    wanted = {
        name: jsonrpc.plain(
            jsonrpc.members(two.link(name).of("subscriptions/listen")[0].message.params)["notifications"]
        )
        for name in "ab"
    }
    assert wanted == {
        "a": {"resourceSubscriptions": ["note://a", "who://"], "x": 1.0},
        "b": {"resourceSubscriptions": ["note://b", "who://"], "x": 1.0},
    }


async def test_a_subscription_that_is_given_up_is_given_up_everywhere(two):
    sink, in_flight = await listening(two)
    asked = {name: two.link(name).of("subscriptions/listen")[0] for name in "ab"}
    asked["a"].says(note(TOOLS_CHANGED, asked["a"].message.id))
    two.modern.cancel(in_flight)
    for name in "ab":
        await two.link(name).until(lambda name=name: two.link(name).cancelled)
        assert two.link(name).cancelled == [(asked[name].message.id, None)]
        asked[name].says(note(TOOLS_CHANGED, asked[name].message.id))
    assert len(sink.got) == 1
