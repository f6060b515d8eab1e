"""What waits for a client to listen: in order, bounded, and the newest rather than the oldest."""

import pytest

from riglm.application.proxy import client_messages
from riglm.application.proxy.client_messages import HeldMessages
from riglm.domain import jsonrpc
from tests.unit.application.fakes import Channel


def note(number, size=0):
    return jsonrpc.notification("n", b'{"n":%d,"x":"%b"}' % (number, b"x" * size))


@pytest.fixture
def channel():
    channel = Channel()
    channel.is_open = False
    return channel


def listen(channel, held):
    channel.is_open = True
    held.flush()
    return channel.told


def test_messages_are_handed_over_in_order_once(channel):
    held = HeldMessages(channel)
    notes = [note(number) for number in range(3)]
    for each in notes:
        held.keep(each)
    held.flush()
    assert len(held) == 3
    assert listen(channel, held) == [each.line for each in notes]
    held.flush()
    assert len(channel.told) == 3
    assert len(held) == 0


def test_messages_go_straight_to_a_client_that_listens(channel):
    held = HeldMessages(channel)
    channel.is_open = True
    held.push(note(2))
    assert channel.told == [note(2).line]
    assert len(held) == 0


def test_too_many_messages_push_out_the_oldest_and_that_is_said_once(channel, monkeypatch, caplog):
    monkeypatch.setattr(client_messages, "MAX_HELD_BACK", 2)
    held = HeldMessages(channel)
    for number in range(5):
        held.keep(note(number))
    assert listen(channel, held) == [note(3).line, note(4).line]
    assert len(caplog.records) == 1


def test_too_many_bytes_push_out_the_oldest_but_never_the_last(channel, monkeypatch):
    monkeypatch.setattr(client_messages, "MAX_BYTES", 250)
    held = HeldMessages(channel)
    for number in range(5):
        held.keep(note(number, 100))
    assert len(held) == 1
    held.keep(note(9, 10))
    assert len(held) == 2
    held.keep(note(10, 1000))
    assert listen(channel, held) == [note(10, 1000).line]
