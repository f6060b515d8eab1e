import json
from types import SimpleNamespace

import pytest

from riglm.adapters.mcp.upstream import channel_link, deadlines
from riglm.adapters.mcp.upstream.channel import answered_id, not_an_answer, report_unreadable
from riglm.adapters.mcp.upstream.channel_link import ChannelLink
from riglm.adapters.mcp.upstream.deadlines import UpstreamTimeouts
from riglm.adapters.mcp.wire.messages import decode
from riglm.domain.errors import UpstreamUnavailableError
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import MalformedMessageError
from riglm.domain.upstream import FRAMED_BY_HEADERS, FRAMED_OVER_LINES
from tests.unit.adapters.upstream.actors import QUICK, SPEC, ask, greeted, notification, settle
from tests.waiting import wait_until_async


@pytest.fixture
def closed() -> list[ChannelLink]:
    return []


@pytest.fixture
async def link(wires, ears, closed):
    link = ChannelLink(SPEC, wires, ears, QUICK, closed.append)
    yield link
    await link.close()


@pytest.mark.parametrize(
    ("asked", "given"), [(2, "2"), (2, 2.0), (2, "2.0"), ("7", 7), ("7", 7.0), (-3, "-3"), (2, " 2"), (2, "02")]
)
async def test_an_answer_may_give_the_id_in_another_type(link, wires, asked, given):
    answer = ask(link, asked, "tools/call")
    (await wires.number(1)).say({"jsonrpc": "2.0", "id": given, "result": {}})
    assert await answer.result() == {}
    assert answer.raw["id"] == asked


async def test_a_late_answer_to_a_request_that_was_given_up_is_for_no_other(link, wires):
    link.cancel(ask(link, 30, "tools/call"), None)
    answer = ask(link, "30", "tools/call")
    wire = await wires.number(1)
    wire.answer({"id": 30}, "late")
    wire.answer({"id": "30"}, "right")
    assert await answer.result() == "right"


@pytest.mark.parametrize("content", [{"error": {"code": -32601, "message": "no such notification"}}, {"result": {}}])
async def test_an_answer_to_a_notification_is_for_no_request(link, wires, content):
    answer = ask(link, 2, "tools/list")
    wire = await wires.number(1)
    wire.say({"jsonrpc": "2.0", "id": None, **content})
    wire.answer({"id": 2}, "works")
    assert await answer.result() == "works"


async def test_an_error_without_an_id_is_for_the_only_request(link, wires, caplog):
    answer, error = ask(link, "7", "tools/call"), b'{"jsonrpc":"2.0","error":{"code":-32603,"message":"x"}}'
    wire = await wires.number(1)
    wire.say(error)
    assert (await answer.error())["message"] == "x"
    assert answer.raw["id"] == "7"
    caplog.set_level("INFO")
    answers = [ask(link, number, "tools/call") for number in (1, 2)]
    wire.say(error)
    assert not any(each.over.is_set() for each in answers)
    assert "ignored a response without a request" in caplog.messages


async def test_an_answer_that_could_be_for_several_requests_is_for_none(link, wires, caplog):
    caplog.set_level("INFO")
    answers = [ask(link, number, "tools/call") for number in ("7", "7.0")]
    wire = await wires.number(1)
    for given in (7, None, 99):
        wire.say({"jsonrpc": "2.0", "id": given, "result": {}})
    assert not any(answer.over.is_set() for answer in answers)
    assert caplog.messages.count("ignored a response without a request") == 3


async def test_progress_may_give_its_token_in_another_type(link, wires):
    answer = ask(link, 1, "tools/call", {"_meta": {"progressToken": 5}})
    ask(link, 2, "tools/call")
    (await wires.number(1)).say(
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "5", "progress": 1}}
    )
    assert [json.loads(each.line)["params"]["progressToken"] for each in answer.heard] == [5]


@pytest.mark.parametrize("method", ["notifications/message", "sampling/createMessage"])
async def test_logs_and_questions_belong_to_the_only_request_in_flight(link, wires, ears, method):
    def say() -> None:
        wire.say({"jsonrpc": "2.0", "method": method, "params": {}, **({"id": 1} if "/create" in method else {})})

    one = ask(link, 1, "tools/call")
    wire = await wires.number(1)
    say()
    assert [message.method for message in one.heard] == [method]
    two = ask(link, 2, "tools/call")
    say()
    wire.answer({"id": 1})
    wire.answer({"id": 2})
    say()
    assert (ears.methods, len(one.heard), two.heard) == ([method, method], 1, [])


async def test_after_a_crash_handshake_log_level_and_subscriptions_are_repeated(link, wires):
    first = await greeted(wires, link)
    for number, (method, params) in enumerate(
        [
            ("logging/setLevel", {"level": "info"}),
            ("resources/subscribe", {"uri": "a:1"}),
            ("resources/subscribe", {"uri": "a:2"}),
            ("resources/unsubscribe", {"uri": "a:1"}),
            ("logging/setLevel", {"level": "error"}),
        ]
    ):
        ask(link, number, method, params)
        first.answer({"id": number})
    ask(link, 9, "resources/subscribe", {"uri": "a:refused"})
    first.refuse({"id": 9})
    first.receiver.ended("exited with code 1")
    answer = ask(link, 10, "tools/call")
    second = await wires.number(2)
    assert second.methods == ["initialize"]
    assert second.lines[0]["params"] == first.lines[0]["params"]
    second.answer(second.lines[0], {"protocolVersion": "2025-11-25"})
    await settle()
    assert second.methods == [
        "initialize",
        "notifications/initialized",
        "logging/setLevel",
        "resources/subscribe",
        "tools/call",
    ]
    assert (second.lines[2]["params"], second.lines[3]["params"]) == ({"level": "error"}, {"uri": "a:2"})
    second.answer(second.lines[2])
    second.answer(second.lines[3])
    second.answer(second.lines[0])
    second.answer({"id": 10}, "works")
    assert await answer.result() == "works"


async def test_noise_is_skipped_and_an_unreadable_answer_fails_its_request(link, wires):
    one, two = ask(link, 1, "tools/call"), ask(link, 2, "tools/call")
    wire = await wires.number(1)
    for line in (b"Loading...", b"[]", b'{"jsonrpc":"2.0","id":', b'{"jsonrpc":"2.0","id":77,"result":NaN}'):
        wire.say(line)
    wire.say(b'{"jsonrpc":"2.0","id":1,"result":{"x":NaN}}')
    assert (await one.words()).startswith("upstream 'server' sent an unreadable answer")
    assert one.failure[0] is ErrorKind.PROTOCOL
    assert not two.over.is_set()


async def test_a_lost_message_that_may_have_been_anybodys_answer_fails_all(link, wires):
    answers = [ask(link, number, "tools/call") for number in range(2)]
    (await wires.number(1)).receiver.missed("sent too much")
    for answer in answers:
        assert await answer.words() == "upstream 'server' sent too much"


async def test_a_request_past_its_deadline_is_cancelled_upstream_and_an_initialize_is_not(wires, ears, monkeypatch):
    monkeypatch.setattr(deadlines, "_SWEEP_SECONDS", 0.01)
    link = ChannelLink(SPEC, wires, ears, UpstreamTimeouts(call=0.05, initialize=0.05), lambda _: None)
    call, initialize = ask(link, "c", "tools/call"), ask(link, "i", "initialize")
    assert "within 0.05 s" in await call.words()
    await initialize.words()
    wire = await wires.number(1)
    cancelled = [line["params"]["requestId"] for line in wire.lines if line["method"] == "notifications/cancelled"]
    assert cancelled == ["c"]
    await link.close()


async def test_a_server_that_answers_no_handshake_is_restarted_after_the_second(wires, ears, monkeypatch):
    monkeypatch.setattr(deadlines, "_SWEEP_SECONDS", 0.01)
    link = ChannelLink(SPEC, wires, ears, UpstreamTimeouts(initialize=0.05), lambda _: None)
    for number in range(2):
        assert "did not answer initialize within 0.05 s" in await ask(link, number, "initialize").words()
    first = await wires.number(1)
    ask(link, 2, "initialize")
    second = await wires.number(2)
    await wait_until_async(lambda: second.methods == ["initialize"])
    assert first.methods == ["initialize", "initialize"]
    assert first.closed == 1
    await link.close()


async def test_after_a_failure_requests_fail_at_once_until_the_next_try(link, wires, monkeypatch):
    monkeypatch.setattr(channel_link, "_INITIAL_BACKOFF", 20.0)
    wires.failures.append(UpstreamUnavailableError("cannot run"))
    assert await ask(link, 1, "tools/list").words() == "upstream 'server' cannot run"
    assert "cannot run; the next try is in" in await ask(link, 2, "tools/list").words()


@pytest.mark.parametrize("bound", ["_MAX_WAITING", "_MAX_WAITING_BYTES"])
async def test_only_a_bounded_number_of_messages_waits_for_the_server_to_start(link, wires, monkeypatch, caplog, bound):
    monkeypatch.setattr(channel_link, bound, 1)
    wires.gate.clear()
    ask(link, 1, "tools/list")
    assert "too many messages wait" in await ask(link, 2, "tools/list").words()
    link.send(notification("notifications/test"))
    assert "dropped a message" in caplog.text
    wires.gate.set()
    assert (await wires.number(1)).methods == ["tools/list"]


async def test_a_server_that_reads_nothing_of_what_waited_is_closed(link, wires):
    wires.prepare = lambda wire: setattr(wire, "refusal", "does not read its input")
    assert "does not read its input" in await ask(link, 1, "tools/list").words()
    await wait_until_async(lambda: wires.all[0].closed == 1)


async def test_a_server_that_ends_during_the_repeated_handshake_is_started_again_by_the_next_request(link, wires):
    first = await greeted(wires, link)
    first.receiver.ended("exited with code 1")
    answer = ask(link, 1, "tools/call")
    second = await wires.number(2)
    second.receiver.ended("exited with code 2")
    assert await answer.words() == "upstream 'server' exited with code 2"
    ask(link, 2, "tools/call")
    assert (await wires.number(3)).methods == ["initialize"]
    assert (first.closed, second.closed) == (1, 1)


@pytest.mark.parametrize(
    ("line", "framing"),
    [
        (b"Content-Length: 52\r", FRAMED_BY_HEADERS),
        (b"content-type: application/vscode-jsonrpc; charset=utf-8", FRAMED_BY_HEADERS),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}Content-Length: 9', FRAMED_BY_HEADERS),
        (b'  "jsonrpc": "2.0",', FRAMED_OVER_LINES),
        (b'{"jsonrpc": "2.0",', FRAMED_OVER_LINES),
        (b'{"jsonrpc":"2.0"}', ""),
        (b'{"id":{},"method":"a"}', ""),
        (b'{"result": 7}', ""),
        (b"{", ""),
        (b"[INFO] Content-Length: 52 bytes read", ""),
        (b"server started", ""),
    ],
)
def test_a_line_that_is_no_message_may_show_another_framing(caplog, line, framing):
    error = decode(line)
    assert isinstance(error, MalformedMessageError)
    report_unreadable(line, error, SimpleNamespace(missed=lambda *_: None), "s")
    (record,) = caplog.records
    assert getattr(record, "framing", "") == framing


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (b'{"jsonrpc":"2.0","id":5,"result":{"x":NaN}}', b"5"),
        (b'{"id": -7 , "jsonrpc": "2.0", "result": {', b"-7"),
        (b' { "jsonrpc" : "2.0" , "id" : "a b" , "error" : {', b'"a b"'),
        (b'{"jsonrpc":"2.0","id":"\\u0061","result":{', b'"a"'),
        (b'{"result":{"id":9,"x":NaN},"jsonrpc":"2.0","id":5}', b"5"),
        (b'{"jsonrpc":"2.0","result":{"id":9,"x":NaN},"id":5} \n', b"5"),
        (b'{"result":{"id":9},"id":5,"jsonrpc":"2.0"}', b"5"),
        (b'{"jsonrpc":"2.0","result":{"id":9,"x":NaN', None),
        (b'{"jsonrpc":"2.0","result":{"x":NaN,"id":9}}', None),
        (b'{"jsonrpc":"2.0","id":5,"params":{"x":NaN}}', None),
        (b'{"jsonrpc":"2.0","id":5,"method":"roots/list","params":{"x":NaN}}', None),
        (b'{"jsonrpc":"2.0","method":"notifications/message","params":{"x":NaN},"id":5}', None),
        (b'{"jsonrpc":"2.0","id":null,"result":{', None),
        (b"loading model 5", None),
        (b"", None),
    ],
)
def test_only_an_id_at_either_end_of_an_answer_is_taken_for_its_id(line, key):
    assert answered_id(line, line) == key


def test_what_begins_with_a_method_is_no_answer():
    assert not_an_answer(b'{"method":"x"')
    assert not_an_answer(b'{"jsonrpc":"2.0","id":1,"method":"x"')
    assert not not_an_answer(b'{"jsonrpc":"2.0","id":1,"result":{"method":"x"')
