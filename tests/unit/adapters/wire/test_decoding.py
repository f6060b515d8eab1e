"""Messages decoded in order, long ones in a thread."""

import asyncio

import pytest

from riglm.adapters.mcp.wire import decoding
from riglm.adapters.mcp.wire.decoding import LONG_BYTES, Decoded, MessageDecoder
from riglm.domain.jsonrpc import Message
from tests.waiting import WAIT_SECONDS

SHORT = b'{"id":2,"result":{}}'
LONG = b'{"id":1,"result":"%b"}' % (b"x" * LONG_BYTES)


class Peer:
    """What a decoder delivered, and whether it paused."""

    def __init__(self) -> None:
        self.ids: list[bytes | None] = []
        self.pauses: list[bool] = []
        self.ended = asyncio.Event()
        self.decoder = MessageDecoder(self.pauses.append)

    def feed(self, data: bytes) -> None:
        self.decoder.feed(data, self.deliver)

    def deliver(self, decoded: Decoded, data: bytes) -> None:
        self.ids.append(decoded.id if isinstance(decoded, Message) else data)

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

    def fail(_: Decoded, __: bytes) -> None:
        raise ValueError

    peer.decoder.feed(LONG, fail)
    peer.feed(SHORT)
    await peer.end()
    assert peer.ids == [b"2"]
    assert "a message failed inside riglm" in caplog.text


LIST = b'{"jsonrpc":"2.0","id":%d,"result":{"tools":"%b"}}'
TOOLS = b"x" * LONG_BYTES


async def test_a_long_result_that_comes_again_is_neither_decoded_nor_a_new_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    messages: list[Message] = []

    def deliver(decoded: Decoded, data: bytes) -> None:
        assert isinstance(decoded, Message)
        assert decoded.line is data
        messages.append(decoded)

    peer = Peer()
    peer.decoder.feed(LIST % (9, TOOLS), deliver)
    await peer.end()
    monkeypatch.setattr(decoding, "decode", None)
    for message_id in (10, 11, 123_456):
        peer.decoder.feed(LIST % (message_id, TOOLS), deliver)
    assert [each.id for each in messages] == [b"9", b"10", b"11", b"123456"]
    assert all(each.result is messages[0].result for each in messages)
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
    found: list[Decoded] = []
    peer = Peer()
    for data in (LIST % (1, TOOLS), other):
        peer.decoder.feed(data, lambda decoded, _: found.append(decoded))
        await peer.end()
        peer.ended.clear()
    expected = decoding.decode(other)
    assert repr(found[1]) == repr(expected)
    if isinstance(expected, Message):
        assert isinstance(found[1], Message)
        assert (found[1].method, bytes(found[1].result)) == (expected.method, bytes(expected.result))
