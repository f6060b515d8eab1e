"""Messages decoded in order, long ones in a thread; lines are in `test_framing`."""

import asyncio

import pytest

from riglm.adapters.mcp.wire import messages
from riglm.adapters.mcp.wire.messages import LONG_BYTES, MessageDecoder
from riglm.domain.jsonrpc import MalformedMessageError, Message
from tests.waiting import WAIT_SECONDS

SHORT = b'{"id":2,"result":{}}'
LONG = b'{"id":1,"result":"%b"}' % (b"x" * LONG_BYTES)


class Peer:
    """What a decoder delivered, and whether it paused."""

    def __init__(self) -> None:
        self.ids: list[bytes | None] = []
        self.pauses: list[bool] = []
        self.ended = asyncio.Event()
        self.messages: list[Message] = []
        self.decoder = MessageDecoder(self.receive, lambda _, data: self.ids.append(data), self.pauses.append)
        self.feed = self.decoder.feed

    def receive(self, message: Message) -> None:
        self.ids.append(message.id)
        self.messages.append(message)

    async def end(self) -> None:
        self.decoder.end(self.ended.set)
        await asyncio.wait_for(self.ended.wait(), WAIT_SECONDS)


async def test_messages_keep_their_order_behind_a_long_one_and_the_peer_is_paused_meanwhile() -> None:
    peer = Peer()
    for data in (LONG, SHORT, LONG, b"noise", SHORT):
        peer.feed(data)
    assert (peer.ids, peer.pauses) == ([], [True])
    await peer.end()
    assert (peer.ids, peer.pauses) == ([b"1", b"2", b"1", b"noise", b"2"], [True, False])
    peer.feed(SHORT)
    assert peer.ids[-1] == b"2"


async def test_a_message_that_fails_does_not_hold_up_the_next(caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer()

    def fail(message: Message) -> None:
        if message.id == b"1":
            raise ValueError
        peer.receive(message)

    peer.decoder.on_message = fail
    for data in (LONG, SHORT, b'{"id":1,"result":{}}', SHORT):
        peer.feed(data)
        await peer.end()
    assert peer.ids == [b"2", b"2"]
    assert caplog.text.count("a message failed inside riglm") == 2


LIST = b'{"jsonrpc":"2.0","id":%d,"result":{"tools":"%b"}}'
TOOLS = b"x" * LONG_BYTES


async def test_a_long_result_that_comes_again_is_neither_decoded_nor_a_new_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = Peer()
    peer.feed(LIST % (9, TOOLS))
    await peer.end()
    monkeypatch.setattr(messages, "decode", None)
    for message_id in (10, 11, 123_456):
        peer.feed(LIST % (message_id, TOOLS))
    assert peer.ids == [b"9", b"10", b"11", b"123456"]
    assert all(each.result is peer.messages[0].result for each in peer.messages)
    assert peer.pauses == [True, False]


@pytest.mark.parametrize(
    "other",
    [
        LIST % (2, TOOLS[1:] + b"y"),
        LIST % (2, TOOLS[1:]),
        LIST % (2, TOOLS[1:] + b"\x00"),
        b'{"jsonrpc":"2.0","id":"2","result":{"tools":"%b"}}' % TOOLS,
        b'{"jsonrpc":"2.0","id":2,"method":"a","result":{"tools":"%b"}}' % TOOLS,
        b'{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"%b"}}' % TOOLS[:-17],
    ],
)
async def test_a_long_message_that_differs_is_decoded(other: bytes) -> None:
    peer = Peer()
    for data in (LIST % (1, TOOLS), other):
        peer.feed(data)
        await peer.end()
        peer.ended.clear()
    expected = messages.decode(other)
    if isinstance(expected, MalformedMessageError):
        assert peer.ids == [b"1", other]
    else:
        found = peer.messages[1]
        assert (found.id, found.method, bytes(found.result)) == (expected.id, expected.method, bytes(expected.result))


async def test_a_closed_decoder_delivers_nothing_more() -> None:
    peer = Peer()
    peer.feed(LONG)
    peer.decoder.close()
    peer.feed(SHORT)
    await asyncio.sleep(0)
    assert peer.ids == []
