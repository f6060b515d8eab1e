"""Several servers as one, for clients of the modern era."""

import asyncio

import pytest

from riglm.application.proxy import era_negotiation, member, subscriptions
from riglm.application.proxy.proxy_service import ProxyService
from riglm.domain import jsonrpc, request_params
from riglm.domain.invocation import ErrorKind
from riglm.domain.session import ProtocolEra, Transport
from riglm.ports.downstream import Caller
from tests.unit.application.fakes import Server, Sink, World, asks, listed, settle, tools
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


CALLER = Caller(transport=Transport.HTTP)


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
        self.modern = ProxyService(self.parts, servers, naming, is_alone=False)
        self._count = 100

    def send(self, number, method, params=b"", principal="anna"):
        message = asks(number, method, b"{%b%b}" % (params + b"," if params else b"", META))
        sink = Sink()
        caller = Caller(transport=Transport.HTTP, principal=principal)
        envelope = request_params.envelope(message)
        return sink, self.modern.receive_modern(message, envelope, sink, caller, {b"mcp-name": b"theirs"})

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


async def test_one_server_of_the_handshake_sends_all_clients_to_it():
    stage = Stage(server("a"), server("b", modern=False))
    sink, _ = stage.send(1, "tools/list")
    await sink.answer()
    ((_, line, status),) = sink.got
    assert status == 400
    assert b'"code":-32022' in line
    assert b'"requested":"2026-07-28"' in line
    assert stage.link("a").asked == []


async def test_requests_wait_once_for_a_server_that_does_not_say_its_era():
    stage = Stage(server("a", "t"), server("b", modern=None, **{"server/discover": held}), grace=3600.0)
    first, _ = stage.send(1, "tools/list")
    await stage.link("b").next("server/discover")
    assert first.got == []
    stage.modern.modern_upstreams(CALLER).negotiation._asked_at["b"] -= 3600.0
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
    monkeypatch.setattr(era_negotiation, "RETRY_SECONDS", -1.0)
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
    await settle()
    assert (await stage.ask("server/discover")).result
    await stage.modern.close()


async def test_a_server_that_never_answers_counts_no_longer_once_its_time_is_over(monkeypatch):
    hung = server("b", modern=None, **{"server/discover": held, "tools/list": held})
    stage = Stage(server("a", "t"), hung)
    assert jsonrpc.error_code(await stage.ask("server/discover")) == -32022
    (await stage.link("b").next("server/discover")).reply.failed(ErrorKind.TIMEOUT, "no answer")
    await settle()
    monkeypatch.setattr(era_negotiation, "RETRY_SECONDS", -1.0)
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
    monkeypatch.setattr(member, "MAX_TTL_SECONDS", 0.0)
    await two.names()
    await two.names()
    assert len(two.link("a").asked) == 2


# --- calls ---


async def test_a_schema_is_known_by_the_name_that_clients_use(two):
    two.servers["a"].answers["tools/list"] = b'{"tools":[{"name":"t","inputSchema":{"x": 1}}]}'
    await two.names()
    assert two.modern.input_schema("a__t", CALLER) == b'{"x": 1}'
    assert two.modern.input_schema("t", CALLER) is None


# --- giving up ---


async def test_a_cancellation_of_one_client_reaches_no_server_by_its_number(two):
    two.modern.notify_modern(jsonrpc.notification("notifications/cancelled", b'{"requestId":7}'), CALLER)
    two.modern.notify_modern(jsonrpc.notification("vendor/told", b'{"x":1.0}'), CALLER)
    for name in "ab":
        assert two.link(name).sent == [b'{"jsonrpc":"2.0","method":"vendor/told","params":{"x":1.0}}']


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
    monkeypatch.setattr(subscriptions, "INITIAL_BACKOFF", 0.0)
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
