"""A tool that is in every list, once and last."""

import json
import logging

import pytest

from riglm.application.filter_middleware.middleware import AlwaysListed
from riglm.domain import jsonrpc

ENTRY = b'{"name":"voice","description":"mine"}'


@pytest.fixture
def always():
    return AlwaysListed("voice", ENTRY)


def completed(always, result):
    return json.loads(bytes(always.completed(jsonrpc.result(b"1", result)).result))


def test_the_last_page_has_the_tool_behind_all_others_and_keeps_the_rest_as_it_is(always):
    page = b'{"tools":[{"name":"a","n":1.50}],"ttlMs":5,"_meta":{"x":1.0}}'
    answer = always.completed(jsonrpc.result(b"1", page))
    assert bytes(answer.result) == b'{"tools":[{"name":"a","n":1.50},%b],"ttlMs":5,"_meta":{"x":1.0}}' % ENTRY


def test_pages_before_the_last_do_not_have_it(always):
    assert completed(always, b'{"tools":[{"name":"a"}],"nextCursor":"x"}')["tools"] == [{"name": "a"}]
    last = completed(always, b'{"tools":[{"name":"a"}],"nextCursor":null}')
    assert [tool["name"] for tool in last["tools"]] == ["a", "voice"]


def test_a_namesake_is_left_out_of_every_page_and_told_once(always, caplog):
    with caplog.at_level(logging.WARNING, logger="riglm"):
        for result in (b'{"tools":[{"name":"v\\u006fice"}],"nextCursor":"x"}', b'{"tools":[{"name":"voice"}]}'):
            names = [tool.get("description") for tool in completed(always, result)["tools"]]
            assert names in ([], ["mine"])
    assert len(caplog.records) == 1


def test_other_answers_pass_as_they_are(always):
    for answer in (
        jsonrpc.result(b"1", b'{"content":[]}'),
        jsonrpc.result(b"1", b"{}"),
        jsonrpc.error(b"1", -32603, "something broke"),
    ):
        assert always.completed(answer) is answer


def test_a_server_that_knows_no_tools_has_this_one(always):
    answer = always.completed(jsonrpc.error(b"7", -32601, "Method not found"))
    assert (bytes(answer.id), json.loads(bytes(answer.result))["tools"]) == (b"7", [json.loads(ENTRY)])


def test_entries_without_a_name_stay(always):
    assert completed(always, b'{"tools":[{"odd":1},7]}')["tools"] == [{"odd": 1}, 7, json.loads(ENTRY)]
