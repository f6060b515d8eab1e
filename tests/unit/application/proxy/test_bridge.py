"""A bridge: what a handshake client says, and what the modern upstream hears, message by message."""

import pytest

from riglm.application.proxy.bridge import BridgeLink
from riglm.domain import jsonrpc
from riglm.domain.invocation import ErrorKind
from tests.unit.application.fakes import Client, Server

ENVELOPE = (
    b'"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    b'"io.modelcontextprotocol/clientCapabilities":{"roots":{"x":1.0}},'
    b'"io.modelcontextprotocol/clientInfo":{ "name":"c","version":"1" }'
)
OPENING = (
    b'{"protocolVersion":"2025-06-18","capabilities":{"roots":{"x":1.0}},"clientInfo":{ "name":"c","version":"1" }}'
)
DISCOVERED = (
    b'{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},'
    b'"instructions":"Do \\u0061s told","ttlMs":0,"cacheScope":"public","x":1.0,'
    b'"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"2","y":1E2},"vendor/m":1.50}}'
)


class Stage:
    """A bridge between a client and an upstream."""

    def __init__(self):
        self.upstream = Server("far")
        self.far = self.upstream.stateless(None)
        self.message_handler = Client()
        self.bridge = BridgeLink(self.upstream, self.message_handler)

    def ask(self, line):
        client = Client(jsonrpc.decode(line))
        self.bridge.request(client.message, client)
        return client

    def call(self, params=b'{"name":"t"}'):
        return self.ask(b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":%b}' % params)

    def answer(self, line):
        self.bridge.send(jsonrpc.decode(line))


@pytest.fixture
async def stage():
    made = Stage()
    client = made.ask(b'{"jsonrpc":"2.0","id":"i","method":"initialize","params":%b}' % OPENING)
    made.greeting = made.far.asked.pop()
    made.greeting.result(DISCOVERED)
    made.greeted = client.outcome
    return made


def called(params=b'"name":"t"', message_id=b"7", more=b""):
    """A call as the upstream gets it."""
    return b'{"jsonrpc":"2.0","id":%b,"method":"tools/call","params":{%b,"_meta":{%b}%b}}' % (
        message_id,
        params,
        ENVELOPE,
        more,
    )


def wants(inputs=b"", state=b""):
    parts = [b'"resultType":"input_required"']
    parts += [b'"inputRequests":' + inputs] if inputs else []
    parts += [b'"requestState":' + state] if state else []
    return b"{%b}" % b",".join(parts)


@pytest.mark.parametrize("version", [b'"2099-01-01"', b'"2026-07-28"', b"7", b"null"])
async def test_a_client_of_an_unknown_version_is_offered_the_latest_handshake(version):
    stage = Stage()
    client = stage.ask(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":%b}}' % version)
    assert stage.far.lines == [
        b'{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{'
        b'"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}'
    ]
    stage.far.asked[0].result(b'{"supportedVersions":["2026-07-28"]}')
    assert client.outcome == (
        b'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},'
        b'"serverInfo":{"name":"far","version":"unknown"}}}'
    )


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (b'{"name":"t"}', called()),
        (
            b'{ "name" : "t", "arguments":{"n":1.0, "s":"\\u0061"}}',
            called(b'"name":"t","arguments":{"n":1.0, "s":"\\u0061"}'),
        ),
        (b"null", called(b"").replace(b"{,", b"{")),
        (b"[1.0]", b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":[1.0]}'),
    ],
)
async def test_params_keep_every_byte_beside_the_envelope(stage, given, sent):
    stage.call(given)
    assert stage.far.lines == [sent]


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        (b'{"jsonrpc":"2.0","method":"notifications/initialized"}', False),
        (b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}', False),
        (b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1}}', False),
        (b'{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}', False),
        (b'{"jsonrpc":"2.0","method":"notifications/vendor/x","params":{"n":1.0}}', True),
        (b'{"jsonrpc":"2.0","id":"nobody asked","result":{}}', False),
    ],
)
async def test_only_what_the_modern_era_may_know_is_sent_on(stage, line, sent):
    stage.answer(line)
    assert stage.far.sent == ([line] if sent else [])


async def test_a_round_with_nothing_but_a_state_is_repeated_a_little_later(stage):
    client = stage.call()
    stage.far.asked[0].result(wants(state=b'"s1"'))
    again = await stage.far.next("tools/call", 2)
    assert again.line == called(message_id=b'"riglm-retry-1"', more=b',"requestState":"s1"')
    again.result(wants(state=b'"s2"'))
    again = await stage.far.next("tools/call", 3)
    assert again.line == called(message_id=b'"riglm-retry-2"', more=b',"requestState":"s2"')
    again.refused(b'{"code":1,"message":"no"}')
    assert client.got == []
    assert client.outcome == b'{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"no"}}'


async def test_an_upstream_that_never_has_enough_is_given_up(stage):
    client = stage.call()
    for number in range(1, 11):
        stage.far.asked[-1].result(wants(b'{"a":{"method":"roots/list"}}'))
        stage.answer(b'{"jsonrpc":"2.0","id":"riglm-ask-%d","result":{}}' % number)
    assert client.outcome is None
    stage.far.asked[-1].result(wants(b'{"a":{"method":"roots/list"}}'))
    assert client.outcome == (ErrorKind.PROTOCOL, "upstream 'far' asked for input more than 10 times")
    assert len(client.got) == 10


@pytest.mark.parametrize("inputs", [b'{"a":{"method":"roots/list"},"b":{}}', b'{"a":{"method":7}}', b'{"a":[]}'])
async def test_a_question_without_a_method_fails_the_call_and_asks_nothing(stage, inputs):
    client = stage.call()
    stage.far.asked[0].result(wants(inputs))
    assert client.outcome == (ErrorKind.PROTOCOL, "upstream 'far' asked for input without saying which")
    assert client.got == []


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        (b'{"mode":"url","url":"u"}', b'{"mode":"url","url":"u","elicitationId":"riglm-ask-1"}'),
        (b'{"mode":"url","url":"u","elicitationId":"e"}', b'{"mode":"url","url":"u","elicitationId":"e"}'),
        (b'{"mode":"form","message":"url","x":"url"}', b'{"mode":"form","message":"url","x":"url"}'),
    ],
)
async def test_an_elicitation_by_url_gets_the_id_that_the_handshake_era_wants(stage, given, asked):
    client = stage.call()
    stage.far.asked[0].result(wants(b'{"a":{"method":"elicitation/create","params":%b}}' % given))
    assert client.got == [b'{"jsonrpc":"2.0","id":"riglm-ask-1","method":"elicitation/create","params":%b}' % asked]


async def test_cancelling_between_rounds_withdraws_the_questions(stage):
    client = stage.call()
    stage.far.asked[0].result(wants(b'{"a":{"method":"roots/list"}}'))
    stage.bridge.cancel(client, None)
    assert client.got[1:] == [
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":'
        b'{"requestId":"riglm-ask-1","reason":"the request that needed it has ended"}}'
    ]
    stage.answer(b'{"jsonrpc":"2.0","id":"riglm-ask-1","result":{}}')
    assert stage.far.cancelled == []
    assert len(stage.far.asked) == 1
