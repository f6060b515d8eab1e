"""Work for answers: one answer whatever happens, and nothing left at the end."""

import asyncio

import pytest

from riglm.application.forwarding.proxied_request import ProxiedRequest
from riglm.application.forwarding.riglm_requests import Workers
from riglm.domain import jsonrpc
from tests.unit.application.fakes import Sink, asks


def exchange():
    sink = Sink()
    return sink, ProxiedRequest(asks(1, "m"), sink)


async def wait_for_ever():
    await asyncio.get_running_loop().create_future()


async def test_work_that_fails_is_answered_with_an_error(caplog):
    async def failing(words):
        raise KeyError(words)

    sink, one = exchange()
    workers = Workers()
    workers.start(one, failing, "secret")
    answer = await sink.answer()
    assert jsonrpc.plain(answer.error) == {"code": -32000, "message": "Internal error in riglm: its log says more"}
    assert caplog.records[0].exc_info[0] is KeyError
    await workers.close()


@pytest.mark.parametrize("started", [False, True])
async def test_work_that_is_given_up_ends_without_a_word(caplog, started):
    sink, one = exchange()
    workers = Workers()
    workers.start(one, wait_for_ever)
    if started:
        await asyncio.sleep(0)  # one turn of the loop, in which the work begins
    workers.cancel(one)
    workers.cancel(exchange()[1])
    await workers.close()
    assert sink.got == []
    assert caplog.records == []


async def test_closing_gives_up_all_work():
    before = asyncio.all_tasks()
    workers = Workers()
    workers.start(exchange()[1], wait_for_ever)
    workers.start(exchange()[1], wait_for_ever)
    assert len(workers) == 2
    await workers.close()
    assert asyncio.all_tasks() == before
    assert len(workers) == 0
