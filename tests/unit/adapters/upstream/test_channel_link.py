import json
from types import SimpleNamespace

import pytest

from riglm.adapters.mcp.upstream import deadlines, reconnecting_channel
from riglm.adapters.mcp.upstream.channel import deliver
from riglm.adapters.mcp.upstream.channel_link import ChannelLink
from riglm.adapters.mcp.upstream.deadlines import UpstreamTimeouts
from riglm.adapters.mcp.wire.decoding import decode
from riglm.domain import jsonrpc
from riglm.domain.errors import UpstreamUnavailableError
from riglm.domain.invocation import ErrorKind
from riglm.domain.upstream import FRAMED_BY_HEADERS, FRAMED_OVER_LINES
from tests.unit.adapters.upstream.actors import (
    QUICK,
    SPEC,
    Answer,
    Ears,
    Rest,
    Wires,
    ask,
    greeted,
    notification,
    request,
    settle,
)
from tests.waiting import wait_until_async


@pytest.fixture
def wires() -> Wires:
    return Wires()


@pytest.fixture
def ears() -> Ears:
    return Ears()


@pytest.fixture
def closed() -> list[ChannelLink]:
    return []


@pytest.fixture
async def link(wires, ears, closed):
    link = ChannelLink(SPEC, wires, ears, QUICK, closed.append)
    yield link
    await link.close()


@pytest.fixture(autouse=True)
def _restart_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnecting_channel, "_INITIAL_BACKOFF", 0.001)


async def test_requests_and_answers_pass_byte_for_byte(link, wires):
    answer = ask(link, "\u00e9", "tools/call", {"x": 1.0})
    wire = await wires.number(1)
    assert wire.raw == [answer.message.line]
    line = b'{"x-vendor":1.50, "jsonrpc":"2.0","id":"\\u00e9","result":{"a": [ ]}}'
    wire.say(line)
    await answer.result()
    assert answer.message_back.line == line


async def test_answers_find_their_requests_in_any_order_and_only_once(link, wires):
    one, two = ask(link, 1, "tools/call"), ask(link, "1", "tools/call")
    wire = await wires.number(1)
    for _ in range(2):
        wire.answer({"id": "1"}, "second")
        wire.answer({"id": 1}, "first")
        wire.answer({"id": 99}, "nobody's")
    assert (await one.result(), await two.result()) == ("first", "second")


@pytest.mark.parametrize(
    ("asked", "given"), [(2, "2"), (2, 2.0), (2, "2.0"), ("7", 7), ("7", 7.0), (-3, "-3"), (2, " 2"), (2, "02")]
)
async def test_an_answer_may_give_the_id_in_another_type(link, wires, asked, given):
    answer = ask(link, asked, "tools/call")
    (await wires.number(1)).say({"jsonrpc": "2.0", "id": given, "result": {}})
    assert await answer.result() == {}
    assert answer.raw["id"] == asked


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


async def test_an_id_that_is_in_use_is_refused_without_harm_to_its_owner(link, wires):
    one, other = ask(link, 1, "tools/call"), ask(link, 1, "tools/call")
    assert (await other.error())["code"] == -32600
    wire = await wires.number(1)
    wire.answer({"id": 1}, "mine")
    assert await one.result() == "mine"
    assert len(wire.raw) == 1


async def test_a_message_that_cannot_be_sent_fails_that_request_alone(link, wires):
    one = ask(link, 1, "tools/call")
    wire = await wires.number(1)
    wire.refusal = "does not read its input"
    two = ask(link, 2, "tools/call")
    assert await two.words() == "upstream 'server' does not read its input"
    wire.answer({"id": 1})
    await one.result()


async def test_progress_goes_to_the_request_with_its_token(link, wires, ears):
    one = ask(link, 1, "tools/call", {"_meta": {"progressToken": "t"}})
    two = ask(link, 2, "tools/call", {"_meta": {"progressToken": 7}})
    wire = await wires.number(1)
    wire.notify("notifications/progress", {"progressToken": 7, "progress": 1})
    wire.notify("notifications/progress", {"progressToken": "unknown", "progress": 1})
    assert ([len(one.heard), len(two.heard)], ears.methods) == ([0, 1], ["notifications/progress"])


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


async def test_other_notifications_belong_to_no_request(link, wires, ears):
    answer = ask(link, 1, "tools/call")
    (await wires.number(1)).notify("notifications/tools/list_changed")
    assert (ears.methods, answer.heard) == (["notifications/tools/list_changed"], [])


async def test_a_cancelled_request_is_forgotten_and_the_clients_own_notice_passed_on(link, wires):
    answer = ask(link, 1, "tools/call")
    wire = await wires.number(1)
    notice = notification("notifications/cancelled", {"requestId": 1, "reason": "user", "x": 1})
    link.cancel(answer, notice)
    link.cancel(answer, notice)
    wire.answer({"id": 1})
    assert wire.raw[1:] == [notice.line]
    assert not answer.over.is_set()


async def test_a_request_given_up_without_a_notice_is_cancelled_in_riglms_words(link, wires):
    answer = ask(link, 1, "tools/call")
    wire = await wires.number(1)
    link.cancel(answer, None)
    assert wire.sent("notifications/cancelled")["params"]["requestId"] == 1


async def test_a_cancellation_follows_its_request_while_the_channel_opens(link, wires):
    wires.gate.clear()
    answer = ask(link, 1, "tools/call")
    await settle()
    link.cancel(answer, None)
    wires.gate.set()
    assert (await wires.number(1)).methods == ["tools/call", "notifications/cancelled"]


async def test_notifications_alone_start_nothing(link, wires):
    link.send(notification("notifications/roots/list_changed"))
    await settle()
    assert wires.all == []


async def test_a_crash_fails_what_is_in_flight_and_names_the_upstream(link, wires):
    answers = [ask(link, number, "tools/call") for number in range(3)]
    (await wires.number(1)).receiver.ended("was ended by signal 9")
    for answer in answers:
        assert await answer.words() == "upstream 'server' was ended by signal 9"
        assert answer.failure[0] is ErrorKind.UNAVAILABLE


async def test_a_channel_that_cannot_be_opened_fails_the_request(link, wires):
    wires.failures.append(UpstreamUnavailableError("cannot run 'x'"))
    assert await ask(link, 1, "initialize").words() == "upstream 'server' cannot run 'x'"


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


@pytest.mark.parametrize("method", ["ping", "roots/list", "elicitation/create"])
async def test_a_restarted_server_may_ask_the_client_before_it_answers_the_repeated_handshake(
    link, wires, ears, method
):
    first = await greeted(wires, link)
    first.receiver.ended("exited with code 1")
    answers = [ask(link, number, "tools/call") for number in (1, 2)]
    second = await wires.number(2)
    second.say({"jsonrpc": "2.0", "id": 5, "method": method})
    assert ears.methods == [method]
    link.send(jsonrpc.result(b"5", b"{}"))
    assert second.lines[1:] == [{"jsonrpc": "2.0", "id": 5, "result": {}}]
    second.answer(second.lines[0])
    await settle()
    for number, answer in enumerate(answers, 1):
        second.answer({"id": number}, "works")
        assert await answer.result() == "works"


async def test_a_restarted_server_that_refuses_the_handshake_fails_the_request(link, wires):
    first = await greeted(wires, link)
    first.receiver.ended("exited with code 1")
    answer = ask(link, 1, "tools/call")
    second = await wires.number(2)
    second.refuse(second.lines[0])
    assert await answer.words() == "upstream 'server' restarted and refused the handshake"


async def test_a_handshake_that_had_no_success_is_not_repeated(link, wires):
    answer = ask(link, 1, "initialize")
    (await wires.number(1)).receiver.ended("exited with code 1")
    await answer.words()
    again = ask(link, 2, "initialize")
    second = await wires.number(2)
    assert second.lines == [json.loads(again.message.line)]


async def test_a_client_that_opens_anew_is_heard_and_not_its_old_handshake(link, wires):
    first = await greeted(wires, link)
    first.receiver.ended("exited with code 1")
    again = ask(link, 2, "initialize")
    second = await wires.number(2)
    assert second.lines == [json.loads(again.message.line)]


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


async def test_closing_ends_what_is_in_flight_and_the_channel(link, wires, closed):
    answer = ask(link, 1, "tools/call")
    wire = await wires.number(1)
    again = Answer(request(2, "tools/call"))
    answer.on_end = lambda: link.request(again.message, again)
    await link.close()
    assert "before the link to it was closed" in await answer.words()
    assert "closed" in await again.words()
    assert (wire.closed, closed) == (1, [link])
    assert "closed" in await ask(link, 3, "tools/call").words()


async def test_a_pipe_has_no_place_to_resume_and_always_listens(link, wires):
    rest = Rest()
    link.listen(listening=True)
    link.resume(b"7", rest)
    assert rest.over.is_set()
    await wait_until_async(lambda: not wires.all)


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
    deliver(decode(line), line, receiver=SimpleNamespace(missed=lambda *_: None), upstream="s")
    (record,) = caplog.records
    assert getattr(record, "framing", "") == framing
