import asyncio

import pytest

from riglm.adapters.mcp.upstream import deadlines
from riglm.adapters.mcp.upstream.deadlines import PendingRequest, PendingRequests, UpstreamTimeouts
from riglm.domain.invocation import ErrorKind
from tests.unit.adapters.upstream.actors import Answer, notification, request, settle
from tests.waiting import wait_until_async

HASTY = UpstreamTimeouts(initialize=0.05, list=0.05, call=0.05, call_max=0.2)


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "_SWEEP_SECONDS", 0.01)


class Pending(PendingRequests):
    """Requests in flight, and those that expired."""

    def __init__(self) -> None:
        self.expired: list[PendingRequest] = []
        super().__init__("server", HASTY, self.expired.append)

    def ask(self, method: str) -> Answer:
        answer = Answer(request(len(self.by_key), method))
        self.add(b"%d" % len(self.by_key), answer)
        return answer


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
    assert UpstreamTimeouts(list=20).for_method(method) == (quiet, in_all)


@pytest.mark.parametrize("method", ["initialize", "server/discover", "tools/list", "tools/call"])
async def test_a_request_that_waited_too_long_fails_once_and_says_how_long(method):
    pending = Pending()
    answer = pending.ask(method)
    assert await answer.words() == f"upstream 'server' did not answer {method} within 0.05 s"
    assert (answer.failure[0], [each.reply for each in pending.expired]) == (ErrorKind.TIMEOUT, [answer])
    assert pending.by_key == {}
    await wait_until_async(lambda: pending._timer is None)


async def test_a_request_that_expires_after_signs_of_life_says_so():
    pending = Pending()
    answer = pending.ask("tools/call")
    await asyncio.sleep(0)
    pending.by_key[b"0"].relate(notification("notifications/progress"))
    assert await answer.words() == "upstream 'server' did not answer tools/call within 0.05 s of its last message"


async def test_signs_of_life_are_worth_time_but_not_for_ever():
    pending = Pending()
    answer = pending.ask("tools/call")
    while not answer.over.is_set():
        pending.by_key[b"0"].relate(notification("notifications/progress"))
        await asyncio.sleep(0.005)
    assert await answer.words() == "upstream 'server' did not answer tools/call within 0.2 s"


async def test_a_client_that_raises_when_it_is_told_does_not_stop_the_clock():
    failures: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    pending = Pending()
    one, later = pending.ask("tools/call"), pending.ask("subscriptions/listen")

    def fault() -> None:
        raise RuntimeError("a fault of the client")

    one.on_end = fault
    await one.words()
    await wait_until_async(lambda: bool(failures))
    second = Answer(request(3, "tools/call"))
    pending.add(b"3", second)
    await second.words()
    await settle()
    assert not later.over.is_set()
    pending.close()


async def test_time_in_which_riglm_holds_the_server_back_does_not_count():
    pending = Pending()
    before = pending.ask("tools/call")
    for _ in range(2):
        pending.hold(on=True)
    meanwhile = pending.ask("tools/call")
    await asyncio.sleep(0.3)
    assert not before.over.is_set()
    assert not meanwhile.over.is_set()
    for _ in range(2):
        pending.hold(on=False)
    assert (
        await before.words() == await meanwhile.words() == "upstream 'server' did not answer tools/call within 0.05 s"
    )
