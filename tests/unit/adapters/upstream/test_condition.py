"""How it stands with a server, as its links notice it."""

import pytest

from riglm.adapters.mcp.upstream.channel import MessageChannel, Receiver
from riglm.adapters.mcp.upstream.channel_upstream import ChannelUpstream
from riglm.adapters.mcp.upstream.deadlines import UpstreamTimeouts
from riglm.domain.errors import UpstreamUnavailableError
from tests.unit.adapters.upstream.actors import QUICK, SPEC, Ears, Wires, ask, greeted, within
from tests.unit.adapters.upstream.web import WebServer, hold, in_turn, reply, saying, visibility
from tests.waiting import wait_until_async


class Piped(ChannelUpstream):
    """An upstream whose channels a test speaks for."""

    def __init__(self, wires: Wires) -> None:
        super().__init__(SPEC, QUICK)
        self.wires = wires

    async def open(self, receiver: Receiver, principal: str = "") -> MessageChannel:
        return await self.wires(receiver)


@pytest.fixture
async def piped(wires):
    upstream = Piped(wires)
    yield upstream
    await within(upstream.close())


def state(upstream):
    return upstream.health().state


async def test_a_server_is_opening_until_its_channel_is_there_and_idle_when_its_client_left(piped, wires):
    wires.gate.clear()
    link = piped.connect(Ears())
    ask(link, 1, "tools/list")
    await wait_until_async(lambda: state(piped) == "opening")
    wires.gate.set()
    await wait_until_async(lambda: state(piped) == "open")
    await within(link.close())
    assert state(piped) == "idle"


async def test_a_server_that_cannot_be_opened_is_broken_and_says_why_also_when_it_is_mended(piped, wires):
    wires.failures.append(UpstreamUnavailableError("has no such program"))
    link = piped.stateless(Ears())
    await ask(link, 1, "tools/list").words()
    assert (state(piped), piped.health().last_error) == ("broken", "has no such program")
    since = piped.health().since
    ask(link, 2, "tools/list")
    await wait_until_async(lambda: state(piped) == "open")
    assert piped.health().last_error == "has no such program"
    assert piped.health().since >= since


async def test_a_server_whose_channel_broke_is_broken_until_it_is_asked_again(piped, wires):
    link = piped.connect(Ears())
    wire = await greeted(wires, link)
    wire.receiver.ended("exited with status 3")
    assert (state(piped), piped.health().last_error) == ("broken", "exited with status 3")
    await within(link.close())
    assert state(piped) == "broken"


@pytest.mark.parametrize("status", [401, 403, 500, 503])
async def test_over_http_a_server_that_refuses_whatever_it_is_asked_is_broken(status):
    server = WebServer()
    server.handlers["tools/list"] = saying(reply(b"", status))
    async with visibility(server) as upstream:
        await ask(upstream.stateless(Ears()), 1, "tools/list").words()
        assert (state(upstream), upstream.health().last_error) == ("broken", f"answered HTTP {status}")


async def test_over_http_a_server_that_never_spoke_is_broken_and_one_that_is_slow_is_not():
    server = WebServer()
    server.handlers["tools/list"] = hold
    hasty = UpstreamTimeouts(list=0.05, call=0.05)
    async with visibility(server, timeout_seconds=hasty) as upstream:
        await ask(upstream.stateless(Ears()), 1, "tools/list").words()
        assert (state(upstream), upstream.health().last_error) == ("broken", "did not answer in time")
    server.handlers["tools/list"] = in_turn(saying(reply(b"{}", 400)), hold)
    async with visibility(server, timeout_seconds=hasty) as upstream:
        link = upstream.stateless(Ears())
        await ask(link, 1, "tools/list").words()
        await ask(link, 2, "tools/list").words()
        assert state(upstream) == "open"
