import asyncio
import logging

import pytest

from riglm.adapters.mcp.upstream import reconnecting_channel
from riglm.adapters.mcp.upstream.channel import MessageChannel
from riglm.adapters.mcp.upstream.reconnecting_channel import ReconnectingChannel
from riglm.domain.errors import UpstreamUnavailableError
from riglm.domain.jsonrpc import Message
from tests.unit.adapters.upstream.actors import Wire, Wires, settle, within
from tests.waiting import wait_until_async

ONE, TWO, THREE = b'{"n":1}', b'{"n":2}', b'{"n":3}'


def said(line):
    """A notification that is this line."""
    return Message(line, None, "notifications/test")


class Owner:
    """Has a lifeline and writes down what it hears."""

    def __init__(self, wires: Wires, greet: object = None) -> None:
        self.messages: list[Message] = []
        self.missed: list[str] = []
        self.downs: list[str] = []
        self.line = ReconnectingChannel(
            "server",
            wires,
            on_message=self.messages.append,
            on_missed=lambda words, _: self.missed.append(words),
            on_down=self.down,
            on_open=greet,  # type: ignore[arg-type]
        )
        self.after_down = lambda: None

    def down(self, reason: str) -> None:
        self.downs.append(reason)
        self.after_down()

    async def went_down(self, times: int = 1) -> str:
        await wait_until_async(lambda: len(self.downs) >= times)
        return self.downs[-1]


@pytest.fixture
def wires() -> Wires:
    return Wires()


@pytest.fixture(autouse=True)
def _restart_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnecting_channel, "_INITIAL_BACKOFF", 0.001)


async def test_nothing_is_opened_before_something_is_to_be_sent(wires):
    owner = Owner(wires)
    owner.line.notify(said(ONE))
    await settle()
    assert wires.all == []
    await owner.line.close()


async def test_what_is_sent_while_the_channel_opens_arrives_in_order(wires):
    owner = Owner(wires)
    wires.gate.clear()
    owner.line.send(ONE)
    await settle()
    owner.line.notify(said(TWO))
    owner.line.send(THREE)
    wires.gate.set()
    wire = await wires.number(1)
    owner.line.send(ONE)
    assert wire.raw == [ONE, TWO, THREE, ONE]
    wire.notify("answer")
    wire.receiver.missed("too long")
    assert ([each.method for each in owner.messages], owner.missed) == (["answer"], ["too long"])
    await owner.line.close()
    assert wire.closed == 1


async def test_a_channel_that_cannot_be_opened_is_reported_and_tried_again(wires):
    owner = Owner(wires)
    wires.failures.append(UpstreamUnavailableError("cannot run"))
    owner.line.send(ONE)
    assert await owner.went_down() == "cannot run"
    owner.line.send(TWO)
    assert (await wires.number(1)).raw == [TWO]
    await owner.line.close()


async def test_a_fault_of_riglm_while_it_opens_is_reported_and_logged(wires, caplog):
    owner = Owner(wires)
    wires.failures.append(RuntimeError("oops"))
    owner.line.send(ONE)
    assert "riglm's log" in await owner.went_down()
    assert "opening failed" in caplog.text
    await owner.line.close()


async def test_a_channel_that_ends_while_it_opens_is_not_used(wires):
    owner = Owner(wires)
    wires.prepare = lambda wire: wire.receiver.ended("exited with code 1")
    owner.line.send(ONE)
    assert await owner.went_down() == "exited with code 1"
    await wait_until_async(lambda: wires.all[0].closed == 1)
    assert wires.all[0].raw == []
    await owner.line.close()


async def test_a_channel_that_ends_in_use_is_closed_and_replaced(wires):
    owner = Owner(wires)
    owner.line.send(ONE)
    first = await wires.number(1)
    first.receiver.ended("was ended by signal 9")
    assert owner.downs == ["was ended by signal 9"]
    owner.line.send(TWO)
    second = await wires.number(2)
    assert (first.closed, second.raw) == (1, [TWO])
    await owner.line.close()


async def test_a_channel_that_was_replaced_is_not_heard_any_more(wires):
    owner = Owner(wires)
    owner.line.send(ONE)
    first = await wires.number(1)
    first.receiver.ended("gone")
    first.notify("late")
    first.receiver.missed("late")
    first.receiver.ended("gone again")
    assert (owner.messages, owner.missed, owner.downs) == ([], [], ["gone"])
    await owner.line.close()


async def test_a_message_sent_when_it_is_told_that_the_channel_is_gone_opens_a_new_one(wires):
    owner = Owner(wires)
    wires.failures.append(UpstreamUnavailableError("cannot run"))

    def again() -> None:
        owner.after_down = lambda: None
        owner.line.send(TWO)

    owner.after_down = again
    owner.line.send(ONE)
    assert (await wires.number(1)).raw == [TWO]
    await owner.line.close()


async def test_after_failures_in_a_row_a_message_is_refused_at_once(wires, monkeypatch):
    monkeypatch.setattr(reconnecting_channel, "_INITIAL_BACKOFF", 20.0)
    owner = Owner(wires)
    wires.failures.append(UpstreamUnavailableError("cannot run"))
    owner.line.send(ONE)
    await owner.went_down()
    with pytest.raises(UpstreamUnavailableError, match=r"cannot run; the next try is in \d+ s"):
        owner.line.send(TWO)
    await owner.line.close()


@pytest.mark.parametrize(("steady", "failures"), [(0.0, 1), (1000.0, 2)])
async def test_a_channel_that_held_for_long_starts_the_count_of_failures_anew(wires, monkeypatch, steady, failures):
    monkeypatch.setattr(reconnecting_channel, "_STEADY_SECONDS", steady)
    owner = Owner(wires)
    for number in (1, 2):
        owner.line.send(ONE)
        wire = await wires.number(number)
        wire.receiver.ended("gone")
    assert owner.line._failures == failures
    await owner.line.close()


@pytest.mark.parametrize("bound", ["_MAX_WAITING", "_MAX_WAITING_BYTES"])
async def test_only_so_much_waits_for_a_channel_to_open(wires, monkeypatch, caplog, bound):
    monkeypatch.setattr(reconnecting_channel, bound, 1)
    owner = Owner(wires)
    wires.gate.clear()
    owner.line.send(ONE)
    with pytest.raises(UpstreamUnavailableError, match="too many messages wait"):
        owner.line.send(TWO)
    owner.line.notify(said(THREE))
    assert "dropped a message" in caplog.text
    wires.gate.set()
    assert (await wires.number(1)).raw == [ONE]
    await owner.line.close()


async def test_a_channel_that_takes_nothing_of_what_waited_is_given_up(wires):
    owner = Owner(wires)
    wires.prepare = lambda wire: setattr(wire, "refusal", "does not read its input")
    owner.line.send(ONE)
    assert await owner.went_down() == "does not read its input"
    await wait_until_async(lambda: wires.all[0].closed == 1)
    await owner.line.close()


async def test_nothing_is_sent_after_the_end(wires):
    owner = Owner(wires)
    await owner.line.close()
    assert not owner.line.is_open
    with pytest.raises(UpstreamUnavailableError, match="closed"):
        owner.line.send(ONE)


async def test_closing_while_it_opens_leaves_no_channel_and_no_task(wires):
    owner = Owner(wires)
    wires.gate.clear()
    owner.line.send(ONE)
    await settle()
    await within(owner.line.close())
    assert (wires.all, owner.downs, len(asyncio.all_tasks())) == ([], [], 1)


async def test_closing_while_it_greets_closes_the_channel(wires):
    greeting = asyncio.Event()

    async def greet(channel: MessageChannel) -> None:
        greeting.set()
        await asyncio.Event().wait()

    owner = Owner(wires, greet)
    owner.line.send(ONE)
    await within(greeting.wait())
    await within(owner.line.close())
    assert (wires.all[0].closed, owner.downs, len(asyncio.all_tasks())) == (1, [], 1)


async def test_what_is_said_in_greeting_comes_before_all_else(wires):
    async def greet(channel: MessageChannel) -> None:
        channel.write(TWO)

    owner = Owner(wires, greet)
    owner.line.send(ONE)
    assert (await wires.number(1)).raw == [TWO, ONE]
    await owner.line.close()


@pytest.mark.parametrize(
    ("failure", "words"),
    [(UpstreamUnavailableError("refused"), "refused"), (TimeoutError(), "did not answer the handshake in time")],
)
async def test_a_greeting_that_fails_is_the_end_of_the_channel(wires, failure, words):
    async def greet(channel: MessageChannel) -> None:
        raise failure

    owner = Owner(wires, greet)
    owner.line.send(ONE)
    assert await owner.went_down() == words
    await wait_until_async(lambda: wires.all[0].closed == 1)
    await owner.line.close()


async def test_a_channel_that_ends_while_it_is_greeted_ends_the_greeting(wires):
    cancelled = asyncio.Event()

    async def greet(channel: MessageChannel) -> None:
        try:
            assert isinstance(channel, Wire)
            channel.receiver.ended("exited with code 0")
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    owner = Owner(wires, greet)
    owner.line.send(ONE)
    assert await owner.went_down() == "exited with code 0"
    assert cancelled.is_set()
    await owner.line.close()


async def test_a_channel_that_cannot_be_closed_is_logged(wires, caplog):
    owner = Owner(wires)
    owner.line.send(ONE)
    wire = await wires.number(1)
    wire.failure = RuntimeError("stuck")
    with caplog.at_level(logging.ERROR):
        await owner.line.close()
    assert "closing failed" in caplog.text


async def test_a_channel_that_is_released_lives_on_and_is_replaced(wires):
    owner = Owner(wires)
    assert owner.line.release() is None
    owner.line.send(ONE)
    wire = await wires.number(1)
    assert owner.line.release() is wire
    wire.notify("not for you")
    wire.receiver.ended("nor is this")
    owner.line.send(TWO)
    await wires.number(2)
    await owner.line.close()
    assert (owner.messages, owner.downs, wire.closed) == ([], [], 0)
