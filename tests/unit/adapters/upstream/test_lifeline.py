import pytest

from riglm.adapters.mcp.upstream import reconnecting_channel
from riglm.adapters.mcp.upstream.reconnecting_channel import ReconnectingChannel
from riglm.domain.errors import UpstreamUnavailableError
from riglm.domain.jsonrpc import Message
from tests.unit.adapters.upstream.actors import Wires
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


async def test_after_failures_in_a_row_a_message_is_refused_at_once(wires, monkeypatch):
    monkeypatch.setattr(reconnecting_channel, "_INITIAL_BACKOFF", 20.0)
    owner = Owner(wires)
    wires.failures.append(UpstreamUnavailableError("cannot run"))
    owner.line.send(ONE)
    await owner.went_down()
    with pytest.raises(UpstreamUnavailableError, match=r"cannot run; the next try is in \d+ s"):
        owner.line.send(TWO)
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
