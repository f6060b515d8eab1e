"""A bridge: what a handshake client says, and what the modern upstream hears, message by message."""

import asyncio

import pytest

from riglm.application.connections.bridge import BridgeLink
from riglm.domain import jsonrpc
from riglm.domain.invocation import ErrorKind
from riglm.ports.upstream import EventPosition
from tests.unit.application.scripted_link import Client, Upstream

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
        self.upstream = Upstream()
        self.far = self.upstream.modern
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


async def test_initialize_becomes_discover_and_its_answer_a_greeting(stage):
    assert stage.greeting.line == (
        b'{"jsonrpc":"2.0","id":"i","method":"server/discover","params":{"_meta":{%b}}}' % ENVELOPE
    )
    assert stage.greeted == (
        b'{"jsonrpc":"2.0","id":"i","result":{"protocolVersion":"2025-06-18",'
        b'"capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"s","version":"2","y":1E2},'
        b'"instructions":"Do \\u0061s told","x":1.0,"_meta":{"vendor/m":1.50}}}'
    )


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


async def test_what_the_client_says_in_meta_stays_before_the_envelope(stage):
    stage.ask(b'{"jsonrpc":"2.0","id":7,"method":"tasks/get","params":{"_meta":{"progressToken":1.0},"x":1E2}}')
    assert stage.far.lines == [
        b'{"jsonrpc":"2.0","id":7,"method":"tasks/get","params":{"_meta":{"progressToken":1.0,%b},"x":1E2}}' % ENVELOPE
    ]


async def test_a_request_without_params_gets_some_for_its_envelope(stage):
    stage.ask(b'{"jsonrpc":"2.0","id":"\\u0061","method":"tools/list"}')
    assert stage.far.lines == [
        b'{"jsonrpc":"2.0","id":"\\u0061","method":"tools/list","params":{"_meta":{%b}}}' % ENVELOPE
    ]


async def test_the_log_level_goes_with_every_request_from_then_on(stage):
    assert (
        stage.ask(b'{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"warning"}}').outcome
        == b'{"jsonrpc":"2.0","id":1,"result":{}}'
    )
    stage.call()
    assert stage.far.lines == [called().replace(ENVELOPE, ENVELOPE + b',"io.modelcontextprotocol/logLevel":"warning"')]


async def test_a_log_level_that_is_none_changes_nothing(stage):
    stage.ask(b'{"jsonrpc":"2.0","id":1,"method":"logging/setLevel"}')
    stage.call()
    assert stage.far.lines == [called()]


async def test_subscriptions_are_kept_by_a_listen(stage):
    more = stage.ask(b'{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"a"}}')
    wanted = b'{"toolsListChanged":true,"resourceSubscriptions":["a"]}'
    assert stage.far.lines == [
        b'{"jsonrpc":"2.0","id":"riglm-listen-1","method":"subscriptions/listen",'
        b'"params":{"notifications":%b,"_meta":{%b}}}' % (wanted, ENVELOPE)
    ]
    stage.far.asked[0].says("notifications/subscriptions/acknowledged", b'{"notifications":%b}' % wanted)
    stage.far.asked[0].says("notifications/resources/updated", b'{"uri":"a"}')
    assert more.outcome == b'{"jsonrpc":"2.0","id":1,"result":{}}'
    assert stage.message_handler.got == [
        b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a"}}'
    ]
    less = stage.ask(b'{"jsonrpc":"2.0","id":2,"method":"resources/unsubscribe","params":{"uri":"a"}}')
    assert less.outcome == b'{"jsonrpc":"2.0","id":2,"result":{}}'
    assert stage.far.cancelled == [(b'"riglm-listen-1"', None)]


async def test_ping_is_answered_here(stage):
    assert stage.ask(b'{"jsonrpc":"2.0","id":"p","method":"ping"}').outcome == b'{"jsonrpc":"2.0","id":"p","result":{}}'
    assert stage.far.asked == []


@pytest.mark.parametrize(
    ("result", "passed"),
    [
        (b'{"resultType":"complete","n":1.0, "_meta": {"a" :1}}', b'{"n":1.0,"_meta":{"a" :1}}'),
        (b'{"ttlMs":0,"cacheScope":"public"}', b'{"ttlMs":0,"cacheScope":"public"}'),
        (
            b'{"resultType":"task","task":{"resultType":"complete"}}',
            b'{"resultType":"task","task":{"resultType":"complete"}}',
        ),
        (b"[1.0]", b"[1.0]"),
        (b"{}", b"{}"),
    ],
)
async def test_a_result_loses_only_the_word_that_it_is_complete(stage, result, passed):
    client = stage.call()
    stage.far.asked[0].result(result)
    assert client.outcome == b'{"jsonrpc":"2.0","id":7,"result":%b}' % passed


async def test_an_error_passes_without_the_http_status_that_means_something_else_in_the_handshake_era(stage):
    client = stage.call()
    stage.far.asked[0].error(b'{"code":-32601, "message":"n\\u006f","data":{"n":1.0}}', status=404)
    assert client.outcome == b'{"jsonrpc":"2.0","id":7,"error":{"code":-32601, "message":"n\\u006f","data":{"n":1.0}}}'


async def test_a_failure_passes(stage):
    client = stage.call()
    stage.far.asked[0].reply.failed(ErrorKind.UNAVAILABLE, "gone")
    assert client.outcome == (ErrorKind.UNAVAILABLE, "gone")


async def test_what_belongs_to_a_request_passes_without_a_place_that_nobody_can_go_back_to(stage):
    client = stage.call()
    reply = stage.far.asked[0].reply
    progress = jsonrpc.notification("notifications/progress", b'{"progressToken":1.0,"progress":2.0}')
    reply.primed(EventPosition(b"1"))
    reply.related(progress, EventPosition(b"2"))
    reply.replied(jsonrpc.result(b"7", b"{}"), event=EventPosition(b"3"))
    reply.related(progress)
    assert client.got == [progress.line]
    assert reply.resumable is False


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


async def test_wanted_input_is_asked_of_the_client_and_the_call_made_again_with_it(stage):
    client = stage.call(b'{"name":"t","arguments":{"n":1.0}}')
    inputs = (
        b'{"\\u0061":{"method":"sampling/createMessage","params":{ "maxTokens":7,"x":1.0 }},'
        b'"b":{"method":"elicitation/create","params":{"message":"?"}},"c":{"method":"roots/list"}}'
    )
    stage.far.asked[0].result(wants(inputs, b'"st\\u0061te"'))
    assert client.got == [
        b'{"jsonrpc":"2.0","id":"riglm-ask-1","method":"sampling/createMessage","params":{ "maxTokens":7,"x":1.0 }}',
        b'{"jsonrpc":"2.0","id":"riglm-ask-2","method":"elicitation/create","params":{"message":"?"}}',
        b'{"jsonrpc":"2.0","id":"riglm-ask-3","method":"roots/list","params":{}}',
    ]
    stage.answer(b'{"jsonrpc":"2.0","id":"riglm-ask-3","result":{"roots":[]}}')
    stage.answer(b'{"jsonrpc":"2.0","id":"riglm-ask-1","result":{ "role":"assistant" }}')
    assert len(stage.far.asked) == 1
    stage.answer(b'{"jsonrpc":"2.0","id":"riglm-ask-2","result":{"action":"accept","x":1E2}}')
    given = b'"name":"t","arguments":{"n":1.0}'
    first = b'{"a":{ "role":"assistant" },"b":{"action":"accept","x":1E2},"c":{"roots":[]}}'
    assert stage.far.lines[1:] == [
        called(given, b'"riglm-retry-1"', b',"inputResponses":%b,"requestState":"st\\u0061te"' % first)
    ]
    stage.far.asked[1].result(wants(b'{"d":{"method":"roots/list"}}'))
    stage.answer(b'{"jsonrpc":"2.0","id":"riglm-ask-4","result":{}}')
    assert stage.far.lines[2:] == [called(given, b'"riglm-retry-2"', b',"inputResponses":{"d":{}}')]
    stage.far.asked[2].result(b'{"resultType":"complete","content":[]}')
    assert client.outcome == b'{"jsonrpc":"2.0","id":7,"result":{"content":[]}}'


async def test_a_round_with_nothing_but_a_state_is_repeated_a_little_later(stage):
    client = stage.call()
    stage.far.asked[0].result(wants(state=b'"s1"'))
    again = await stage.far.until(2)
    assert again.line == called(message_id=b'"riglm-retry-1"', more=b',"requestState":"s1"')
    again.result(wants(state=b'"s2"'))
    again = await stage.far.until(3)
    assert again.line == called(message_id=b'"riglm-retry-2"', more=b',"requestState":"s2"')
    again.error(b'{"code":1,"message":"no"}')
    assert client.got == []
    assert client.outcome == b'{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"no"}}'


async def test_a_refusal_of_the_client_is_the_answer_and_its_other_questions_are_withdrawn(stage):
    client = stage.call()
    stage.far.asked[0].result(wants(b'{"a":{"method":"roots/list"},"b":{"method":"vendor/ask"}}'))
    asked = len(client.got)
    stage.answer(b'{"jsonrpc":"2.0","id":"riglm-ask-2","error":{"code":-1,"message":"n\\u006f","data":1.0}}')
    assert client.outcome == b'{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"n\\u006f","data":1.0}}'
    assert client.got[asked:] == [
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":'
        b'{"requestId":"riglm-ask-1","reason":"the request that needed it has ended"}}'
    ]
    stage.answer(b'{"jsonrpc":"2.0","id":"riglm-ask-1","result":{}}')
    assert len(stage.far.asked) == 1


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


async def test_cancelling_ends_the_round_that_is_under_way(stage):
    client = stage.call()
    stage.far.asked[0].result(wants(b'{"a":{"method":"roots/list"}}'))
    stage.answer(b'{"jsonrpc":"2.0","id":"riglm-ask-1","result":{}}')
    notice = jsonrpc.notification("notifications/cancelled", b'{"requestId":7,"reason":"\\u0061"}')
    stage.bridge.cancel(client, notice)
    assert stage.far.cancelled == [(b'"riglm-retry-1"', notice.line)]
    stage.far.asked[1].result(b"{}")
    stage.far.asked[1].reply.failed(ErrorKind.TIMEOUT, "late")
    stage.bridge.cancel(client, notice)
    assert client.outcome is None
    assert len(stage.far.cancelled) == 1


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


async def test_cancelling_in_a_pause_asks_nothing_more(stage):
    paused, other = stage.call(), stage.call()
    stage.far.asked[0].result(wants(state=b'"s"'))
    stage.bridge.cancel(paused, None)
    stage.far.asked[1].result(wants(state=b'"t"'))
    await stage.far.until(3)  # had the first one gone on, it would have come before
    assert b'"requestState":"t"' in stage.far.lines[2]
    assert stage.far.cancelled == []
    assert other.outcome is None


async def test_closing_gives_up_everything_but_the_way_that_others_use(stage):
    asking, flying = stage.call(), stage.ask(b'{"jsonrpc":"2.0","id":8,"method":"tools/list"}')
    stage.far.asked[0].result(wants(b'{"a":{"method":"roots/list"}}'))
    stage.bridge.listen(listening=True)
    await stage.bridge.close()
    assert stage.far.cancelled == [(b'"riglm-listen-1"', None), (b"8", None)]
    assert not stage.far.closed
    assert (asking.outcome, flying.outcome) == (None, None)


async def test_what_is_said_before_any_initialize_has_an_envelope_too():
    stage = Stage()
    stage.call()
    assert stage.far.lines == [
        b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","_meta":{'
        b'"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}'
    ]


async def test_a_stream_of_the_modern_era_cannot_be_taken_up_again(stage):
    ended = asyncio.Event()

    class Stream:
        def ended(self):
            ended.set()

    stage.bridge.resume(b"1", Stream())
    assert ended.is_set()
