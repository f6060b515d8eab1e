import asyncio

import pytest

from riglm.adapters.mcp.upstream import deadlines
from riglm.adapters.mcp.upstream.deadlines import Deadlines, PausableClock, RequestDeadline, UpstreamTimeouts
from riglm.domain.invocation import ErrorKind
from tests.unit.adapters.upstream.actors import Answer, request, settle
from tests.waiting import wait_until_async

HASTY = UpstreamTimeouts(initialize=0.05, list=0.05, call=0.05, call_max=0.2)


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "_SWEEP_SECONDS", 0.01)


def ignore(*_: object) -> None:
    """Nobody needs to know."""


@pytest.mark.parametrize(
    ("method", "quiet", "in_all"),
    [
        ("initialize", 30, 30),
        ("server/discover", 5, 5),
        ("tools/list", 20, 20),
        ("resources/templates/list", 20, 20),
        ("tools/call", 900, 14_400),
        ("vendor/anything", 900, 14_400),
        ("subscriptions/listen", float("inf"), float("inf")),
    ],
)
def test_how_long_to_wait_depends_on_what_was_asked(method, quiet, in_all):
    assert UpstreamTimeouts(list=20).of(method) == (quiet, in_all)


@pytest.mark.parametrize("method", ["initialize", "server/discover", "tools/list", "tools/call"])
async def test_a_request_that_waited_too_long_fails_once_and_says_how_long(method):
    expired: list[RequestDeadline] = []
    clock = Deadlines("server", HASTY)
    answer = Answer(request(1, method))
    waiting = clock.add(answer, expired.append)
    assert await answer.words() == f"upstream 'server' did not answer {method} within 0.05 s"
    assert (answer.failure[0], expired, len(clock)) == (ErrorKind.TIMEOUT, [waiting], 0)
    await wait_until_async(lambda: clock._timer is None)


async def test_a_request_that_expires_after_signs_of_life_says_so():
    clock = Deadlines("server", HASTY)
    answer = Answer(request(1, "tools/call"))
    clock.add(answer, ignore).progressed()
    assert await answer.words() == "upstream 'server' did not answer tools/call within 0.05 s of its last message"


async def test_signs_of_life_are_worth_time_but_not_for_ever():
    clock = Deadlines("server", HASTY)
    answer = Answer(request(1, "tools/call"))
    waiting = clock.add(answer, ignore)
    while not answer.over.is_set():
        waiting.progressed()
        await asyncio.sleep(0.005)
    assert await answer.words() == "upstream 'server' did not answer tools/call within 0.2 s"


async def test_a_client_that_raises_when_it_is_told_does_not_stop_the_clock():
    failures: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    clock = Deadlines("server", HASTY)
    one, later = Answer(request(1, "tools/call")), Answer(request(2, "subscriptions/listen"))

    def fault() -> None:
        raise RuntimeError("a fault of the client")

    one.on_end = fault
    clock.add(one, ignore)
    clock.add(later, ignore)
    await one.words()
    await wait_until_async(lambda: bool(failures))
    second = Answer(request(3, "tools/call"))
    clock.add(second, ignore)
    await second.words()
    clock.close()
    await settle()
    assert not later.over.is_set()


def test_a_clock_that_is_held_stands_still_and_goes_on_from_there(monkeypatch: pytest.MonkeyPatch):
    now = 100.0
    monkeypatch.setattr(deadlines.time, "monotonic", lambda: now)
    clock = PausableClock()
    told = [clock()]
    for seconds, on in ((10, True), (50, True), (0, False), (5, False)):
        now += seconds
        clock.hold(on=on)
        told.append(clock())
    assert told == [100.0, 110.0, 110.0, 110.0, 115.0]
