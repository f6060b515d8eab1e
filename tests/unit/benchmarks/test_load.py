import json
from typing import Any

import pytest
from benchmarks.load.catalog import make
from benchmarks.load.message import NoAnswer, echo, parse, request, sleep
from benchmarks.load.upstream import Server
from benchmarks.overhead.measure import Record


def ask(server: Server, method: str, params: Any) -> tuple[Any, float]:
    answer, seconds = server.answer(json.loads(request(method, params, 7)))
    return parse(answer).content(), seconds


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_catalogue_has_the_size_asked_for_and_no_name_twice(size: int) -> None:
    assert len({tool["name"] for tool in make(size)}) == size


def test_a_larger_catalogue_begins_with_the_smaller_one() -> None:
    assert make(100)[:10] == make(10)


def test_the_upstream_echoes_at_once_and_answers_a_sleep_later() -> None:
    server = Server(2)
    assert ask(server, "tools/call", echo("hello")) == ({"content": [{"type": "text", "text": "hello"}]}, 0)
    assert ask(server, "tools/call", sleep(20))[1] == 0.02


def test_the_upstream_counts_what_it_was_asked() -> None:
    server = Server(2)
    ask(server, "tools/list", {})
    result, _ = ask(server, "tools/call", echo("#stats"))
    assert json.loads(result["content"][0]["text"]) == {"tools/list": 1, "tools/call": 1}


def test_the_upstream_does_not_answer_a_notification() -> None:
    assert Server(2).answer({"jsonrpc": "2.0", "method": "notifications/initialized"}) == (b"", 0)


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b'"text"', b"\xff"])
def test_a_line_that_holds_no_message_is_no_answer(line: bytes) -> None:
    with pytest.raises(NoAnswer):
        parse(line)


def test_an_error_is_no_content() -> None:
    with pytest.raises(NoAnswer, match="not found"):
        parse(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"not found"}}').content()


def test_a_failed_tool_has_no_text() -> None:
    with pytest.raises(NoAnswer):
        parse(b'{"jsonrpc":"2.0","id":1,"result":{"isError":true,"content":[{"type":"text","text":"no"}]}}').text()


def test_a_record_gives_percentiles_of_latencies_and_the_median_of_figures() -> None:
    record = Record()
    record.latency("call", [float(number) for number in range(100)])
    for value in (1.0, 9.0, 2.0):
        record.figure("rate", value)
    assert record.summary() == {"rate": 2.0, "call_p50": 49.5, "call_p99": 99.0}
