"""What every upstream must do: subclass `UpstreamContract` and give it an upstream in front of a server.

The server answers `initialize`, and has two tools: `nonce` gives its argument `nonce` back as a text; `slow` reports
progress as often as its argument `steps` says, and never answers when `hold` is true. The tests are coroutines: they
need pytest-asyncio in its auto mode.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, Final, TypeVar

import pytest

from riglm.domain import jsonrpc, protocol
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.domain.session import ProtocolEra
from riglm.ports.upstream import ServerMessageHandler, UpstreamLink, UpstreamPort, UpstreamRequest
from tests.waiting import WAIT_SECONDS

PATIENCE: Final = WAIT_SECONDS
"""After so many seconds a test is taken for failed."""

_CLIENT: Final = {"name": "contract", "version": "1"}
_T = TypeVar("_T")


async def within(waiting: Awaitable[_T]) -> _T:
    """What is waited for, in time."""
    async with asyncio.timeout(PATIENCE):
        return await waiting


class RecordedReply(UpstreamRequest):
    """A request, and all that came back for it; a second end fails the test."""

    def __init__(self, message: Message) -> None:
        """A request that was not sent yet."""
        self.message = message
        self.headers: Mapping[bytes, bytes] = {}
        self.heard: list[Message] = []
        self.answer: Message | None = None
        self.failure: tuple[ErrorKind, str] | None = None
        self.over = asyncio.Event()

    def related(self, message: Message) -> None:
        """Keep it."""
        assert not self.over.is_set(), "nothing belongs to a request that ended"
        self.heard.append(message)

    def paused(self, retry_ms: int) -> None:
        """Wait on."""

    def replied(self, message: Message, status: int = 200) -> None:
        """Keep the answer."""
        self.answer = message
        self._end()

    def failed(self, kind: ErrorKind, words: str) -> None:
        """Keep the reason."""
        self.failure = (kind, words)
        self._end()

    async def answered(self) -> Message:
        """The answer, which must be one of the server."""
        await within(self.over.wait())
        assert self.answer is not None, self.failure
        return self.answer

    async def words(self) -> str:
        """Why there is no answer."""
        await within(self.over.wait())
        assert self.failure is not None, self.answer
        return self.failure[1]

    def _end(self) -> None:
        assert not self.over.is_set(), "a request ends once"
        self.over.set()


class RecordedOutlet(ServerMessageHandler):
    """Keeps what the server says of its own accord."""

    def __init__(self) -> None:
        """Nothing was said yet."""
        self.heard: list[Message] = []

    def unsolicited(self, link: UpstreamLink, message: Message) -> None:
        """Keep it."""
        self.heard.append(message)


def ask(link: UpstreamLink, message_id: object, method: str, params: Mapping[str, Any] | None = None) -> RecordedReply:
    """Send a request over a link."""
    reply = RecordedReply(jsonrpc.request(jsonrpc.encode(message_id), method, jsonrpc.encode(params or {})))
    link.request(reply.message, reply)
    return reply


def call(link: UpstreamLink, message_id: object, tool: str, meta: object = None, **arguments: object) -> RecordedReply:
    """Call a tool over a link."""
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    return ask(link, message_id, "tools/call", params if meta is None else {**params, "_meta": meta})


async def greeted(upstream: UpstreamPort, message_handler: ServerMessageHandler | None = None) -> UpstreamLink:
    """A link over which the handshake was done."""
    link = upstream.connect(message_handler or RecordedOutlet())
    params = {"protocolVersion": protocol.HANDSHAKE_VERSIONS[-1], "capabilities": {}, "clientInfo": _CLIENT}
    answer = await ask(link, "hello", "initialize", params).answered()
    assert answer.result, answer.line
    link.send(jsonrpc.notification("notifications/initialized"))
    return link


class UpstreamContract:
    """Override the fixture `upstream` with one in front of a running server, and close it afterwards."""

    @pytest.fixture
    def upstream(self) -> UpstreamPort:
        """The upstream under test, to which nothing was said yet."""
        raise NotImplementedError

    async def test_an_answer_carries_the_id_as_the_client_wrote_it(self, upstream: UpstreamPort) -> None:
        """Numbers stay numbers, strings strings, whatever is in them."""
        link = await greeted(upstream)
        for message_id in (0, -5, "", "7", "\u00e9 \U0001f600"):
            answer = await call(link, message_id, "nonce", nonce="x").answered()
            assert answer.id == jsonrpc.encode(message_id)

    async def test_an_error_of_the_server_is_an_answer(self, upstream: UpstreamPort) -> None:
        """It is passed on as it is."""
        link = await greeted(upstream)
        answer = await call(link, 1, "no such tool").answered()
        assert answer.error or jsonrpc.is_tool_error(answer)
        assert answer.id == b"1"

    async def test_clients_with_equal_ids_get_their_own_answers(self, upstream: UpstreamPort) -> None:
        """Nobody gets what another asked for."""
        links = [await greeted(upstream) for _ in range(4)]
        replies = [
            [call(link, number, "nonce", nonce=f"{name}/{number}") for number in range(10)]
            for name, link in enumerate(links)
        ]
        for name, own in enumerate(replies):
            for number, reply in enumerate(own):
                assert b'"%d/%d"' % (name, number) in (await reply.answered()).line

    async def test_progress_reaches_its_own_request_under_its_own_token(self, upstream: UpstreamPort) -> None:
        """Tokens of clients may be equal."""
        links = [await greeted(upstream) for _ in range(2)]
        replies = [call(link, 1, "slow", {"progressToken": "t"}, steps=steps) for steps, link in enumerate(links, 1)]
        for steps, reply in enumerate(replies, 1):
            await reply.answered()
            assert [message.method for message in reply.heard] == ["notifications/progress"] * steps
            assert all(b'"progressToken":"t"' in message.line for message in reply.heard)

    async def test_a_request_that_is_given_up_has_no_end_and_harms_no_other(self, upstream: UpstreamPort) -> None:
        """With a notice of the client or without, and twice makes no difference."""
        link = await greeted(upstream)
        one, two = call(link, 1, "slow", hold=True), call(link, 2, "slow", hold=True)
        notice = jsonrpc.notification("notifications/cancelled", b'{"requestId":1}')
        for _ in range(2):
            link.cancel(one, notice)
            link.cancel(two, None)
        await call(link, 3, "nonce", nonce="x").answered()
        await link.close()
        assert not one.over.is_set()
        assert not two.over.is_set()

    async def test_closing_a_link_ends_what_is_in_flight_on_it_alone(self, upstream: UpstreamPort) -> None:
        """The words name the upstream."""
        link, other = await greeted(upstream), await greeted(upstream)
        reply = call(link, 1, "slow", hold=True)
        await within(link.close())
        assert f"upstream {upstream.spec.name!r}" in await reply.words()
        await call(other, 1, "nonce", nonce="x").answered()

    async def test_a_closed_link_refuses_requests_and_can_be_closed_again(self, upstream: UpstreamPort) -> None:
        """Nothing raises."""
        link = await greeted(upstream)
        await within(link.close())
        link.send(jsonrpc.notification("notifications/roots/list_changed"))
        assert f"upstream {upstream.spec.name!r}" in await call(link, 1, "nonce", nonce="x").words()
        await within(link.close())

    async def test_a_link_that_was_never_used_can_be_closed(self, upstream: UpstreamPort) -> None:
        """A client may connect and leave without a word."""
        link = upstream.connect(RecordedOutlet())
        link.listen(listening=True)
        link.listen(listening=False)
        await within(link.close())

    async def test_the_modern_era_has_one_link_for_all(self, upstream: UpstreamPort) -> None:
        """Whoever asks over it is answered, if only by a refusal."""
        link = upstream.stateless(RecordedOutlet())
        assert upstream.stateless(RecordedOutlet()) is link
        envelope = {
            protocol.META_VERSION: protocol.MODERN_VERSIONS[-1],
            protocol.META_CLIENT: _CLIENT,
            protocol.META_CAPABILITIES: {},
        }
        replies = [ask(link, "same", "server/discover", {"_meta": envelope}) for _ in range(3)]
        for reply in replies:
            assert (await reply.answered()).id == b'"same"'

    async def test_what_is_known_of_an_era_is_told_to_all_who_ask(self, upstream: UpstreamPort) -> None:
        """What was learned is no longer unknown."""
        for era in ProtocolEra:
            upstream.learned(era, supported=True)
            assert upstream.supports(era) in (True, False)

    async def test_its_health_tells_whether_it_can_be_asked(self, upstream: UpstreamPort) -> None:
        """A server that was never asked is idle, one that answers is open."""
        before = upstream.health()
        assert (before.name, before.state) == (upstream.spec.name, "idle")
        await call(await greeted(upstream), 1, "nonce", nonce="n").answered()
        after = upstream.health()
        assert (after.state, after.last_error) == ("open", None)
        assert after.since >= before.since

    async def test_closing_the_upstream_ends_what_is_in_flight_on_every_link(self, upstream: UpstreamPort) -> None:
        """And it can be closed again."""
        replies = [call(await greeted(upstream), 1, "slow", hold=True) for _ in range(2)]
        await within(upstream.close())
        for reply in replies:
            assert f"upstream {upstream.spec.name!r}" in await reply.words()
        await within(upstream.close())
