"""Questions of riglm's own: answered once, given up when nobody waits, and never endless."""

import asyncio

import pytest

from riglm.application.forwarding import riglm_requests
from riglm.application.forwarding.riglm_requests import Asking
from riglm.domain import jsonrpc
from tests.unit.application.fakes import Server, tools


class Unheard:
    def unsolicited(self, link, message, event=None):
        raise AssertionError("nothing is said")


def link_to(answer=None):
    return Server("far", {"tools/list": answer} if answer else {}).connect(Unheard())


async def pages(link):
    return await Asking().pages(link, "tools/list", "tools", b'{"_meta":{"k":1}}')


async def test_each_question_has_an_id_of_its_own_that_no_client_thinks_of():
    link = link_to(b"{}")
    for one in (Asking(), Asking()):
        await one.ask(link, "tools/list", b"{}")
        await one.ask(link, "tools/list", b"{}")
    ids = {asked.message.id for asked in link.asked}
    assert len(ids) == 4
    assert all(each.startswith(b'"riglm-') and len(each) >= 18 for each in ids)


class Handler:
    def __init__(self):
        self.heard = []

    def unsolicited(self, link, message, event=None):
        self.heard.append(message.method)


@pytest.mark.parametrize("is_own_handler", [True, False])
async def test_what_belongs_to_a_question_is_heard_until_its_answer(is_own_handler):
    link, heard, handler = link_to(), [], Handler()
    on_server_message = (lambda message: heard.append(message.method)) if is_own_handler else None
    asked = asyncio.ensure_future(Asking(handler).put(link, "tools/list", b"{}", on_server_message))
    question = await link.next("tools/list")
    question.says(b'{"method":"n"}')
    question.result(b"{}")
    question.result(b"[]")
    question.says(b'{"method":"late"}')
    answer, _ = await asked
    assert bytes(answer.result) == b"{}"
    assert (heard, handler.heard) == ((["n"], []) if is_own_handler else ([], ["n"]))


@pytest.mark.parametrize(("method", "answer"), [("ping", b'"result":{}'), ("roots/list", b'"code":-32601')])
async def test_riglm_answers_what_a_server_asks_where_no_client_is(method, answer):
    link = link_to()
    asked = asyncio.ensure_future(Asking().ask(link, "tools/list", b"{}"))
    question = await link.next("tools/list")
    question.says(b'{"jsonrpc":"2.0","id":5,"method":"%b"}' % method.encode())
    question.result(b"{}")
    await asked
    (reply,) = link.sent
    assert reply.startswith(b'{"jsonrpc":"2.0","id":5,')
    assert answer in reply


async def test_a_question_that_nobody_waits_for_is_given_up():
    link = link_to()
    asked = asyncio.ensure_future(Asking().ask(link, "tools/list", b"{}"))
    question = await link.next("tools/list")
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert link.cancelled == [(question.message.id, None)]
    question.result()


async def test_pages_are_followed_with_the_cursor_as_it_came():
    answers = {
        b'{"_meta":{"k":1}}': tools("1", nextCursor="é\\"),
        b'{"_meta":{"k":1},"cursor":"\xc3\xa9\\\\"}': b'{"tools":[{ "name":"2"}],"nextCursor":null}',
    }
    entries, answer = await pages(link_to(lambda asked: asked.result(answers[bytes(asked.message.params)])))
    assert [bytes(entry) for entry in entries] == [b'{"name":"1"}', b'{ "name":"2"}']
    assert answer.result


async def test_a_list_ends_where_a_page_fails():
    def answer(asked):
        if b"cursor" in asked.message.line:
            asked.error(-5)
        else:
            asked.result(tools("1", nextCursor="x"))

    _, answer = await pages(link_to(answer))
    assert jsonrpc.error_code(answer) == -5


def counting():
    count = iter(range(10_000))
    return lambda asked: asked.result(tools("t" * 100, nextCursor=str(next(count))))


@pytest.mark.parametrize(("name", "value"), [("MAX_PAGES", 3), ("MAX_BYTES", 500), ("MAX_SECONDS", -1.0)])
async def test_an_endless_list_is_taken_for_all_that_came(monkeypatch, caplog, name, value):
    monkeypatch.setattr(riglm_requests, name, value)
    link = link_to(counting())
    entries, answer = await pages(link)
    assert len(entries) == len(link.asked) <= 3
    assert answer.result
    assert len(caplog.records) == 1
