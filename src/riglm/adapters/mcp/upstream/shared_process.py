"""A server process of the handshake era that several clients share."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from riglm.adapters.mcp.upstream.channel import Opener
from riglm.adapters.mcp.upstream.deadlines import PendingRequest, UpstreamTimeouts
from riglm.adapters.mcp.upstream.health import ChannelHealthTracker
from riglm.adapters.mcp.upstream.shared_channel import SharedChannel
from riglm.domain import jsonrpc
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.upstream import UpstreamSpec
from riglm.ports.upstream import ServerMessageHandler, UpstreamLink, UpstreamRequest


class SharedClientLink(UpstreamLink):
    """The link of one client connection to a shared process, which looks like a dedicated one to the client."""

    def __init__(self, shared: "SharedProcess", message_handler: ServerMessageHandler) -> None:
        self.spec = shared.spec
        self.message_handler = message_handler
        self._shared = shared
        self._opening: UpstreamRequest | None = None
        self._closed = False

    @property
    def tools_version(self) -> int:
        return self._shared.tools_version

    def request(self, message: Message, reply: UpstreamRequest) -> None:
        if self._closed:
            reply.failed(ErrorKind.UNAVAILABLE, f"upstream {self.spec.name!r} cannot be asked any more")
            return
        if message.method == "initialize":
            self._opening = reply
            self._shared.greet(message, reply)
            return
        asked = SharedRequest(message, reply, self)
        if message.method == "resources/unsubscribe" and not self._shared.unsubscribe(self, asked.uri):
            reply.replied(jsonrpc.result(message.id or b"null", b"{}"))
            return
        if message.method == "resources/subscribe":
            self._shared.subscribe(self, asked.uri)
        self._shared.request(message, asked)

    def send(self, message: Message) -> None:
        if message.is_response:
            self._shared.answer(self, message)
        elif message.method == "notifications/initialized":
            self._shared.finish_greeting(message)
        elif message.method != "notifications/cancelled":
            self._shared.send(message)

    def cancel(self, reply: UpstreamRequest, notice: Message | None) -> None:
        for asked in self._shared.requests:
            if asked.reply is reply:
                self._shared.cancel(asked, notice)
                return
        self._shared.leave_greeting(reply)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        words = f"upstream {self.spec.name!r} did not answer before the link to it was closed"
        if self._opening is not None and self._shared.leave_greeting(self._opening):
            self._opening.failed(ErrorKind.UNKNOWN, words)
        for asked in self._shared.requests:
            if asked.client_link is self:
                self._shared.cancel(asked, None)
                asked.failed(ErrorKind.UNKNOWN, words)
        await self._shared.leave(self)

    def undo(self, asked: "SharedRequest") -> None:
        """Take back what was noted for a request that the server did not accept."""
        if asked.message.method == "resources/subscribe":
            self._shared.unsubscribe(self, asked.uri)


class SharedRequest(UpstreamRequest):
    """A request of one client that is in flight."""

    __slots__ = ("client_link", "headers", "message", "reply")

    def __init__(self, message: Message, reply: UpstreamRequest, client_link: SharedClientLink) -> None:
        self.message = message
        self.reply = reply
        self.client_link = client_link
        self.headers = reply.headers

    @property
    def uri(self) -> str:
        """The resource that a subscription is about."""
        return jsonrpc.text(jsonrpc.members(self.message.params).get("uri")) or ""

    def related(self, message: Message) -> None:
        self.reply.related(message)

    def paused(self, retry_ms: int) -> None:
        self.reply.paused(retry_ms)

    def replied(self, message: Message, status: int = 200) -> None:
        if message.error:
            self.client_link.undo(self)
        self.reply.replied(message, status)

    def failed(self, kind: ErrorKind, words: str) -> None:
        self.client_link.undo(self)
        self.reply.failed(kind, words)


class SharedInitialize(UpstreamRequest):
    """An `initialize` that is in flight, with the `replies` of all clients that wait for its response."""

    __slots__ = ("headers", "is_over", "message", "replies")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.headers = {}
        self.replies: list[UpstreamRequest] = []
        self.is_over = False

    def related(self, message: Message) -> None:
        for reply in self.replies[:1]:
            reply.related(message)

    def paused(self, retry_ms: int) -> None:
        """Wait on."""

    def replied(self, message: Message, status: int = 200) -> None:
        self.is_over = True
        for reply in list(self.replies):
            reply.replied(message.replace(id=reply.message.id or b"null"), status)

    def failed(self, kind: ErrorKind, words: str) -> None:
        self.is_over = True
        for reply in list(self.replies):
            reply.failed(kind, words)


_REFUSAL: Final = "Method not found: several clients share this server, and it is unknown which one is meant"


class SharedProcess(SharedChannel):
    """The first client's handshake opens the process for all; later ones are answered with what it brought.

    What the server says without a request goes to every client, changes of a resource to those that subscribed to it.
    Its questions go to the client whose requests are in flight, if that is one client alone.
    """

    def __init__(
        self,
        spec: UpstreamSpec,
        opener: Opener,
        timeout_seconds: UpstreamTimeouts,
        on_empty: Callable[["SharedProcess"], Awaitable[None]],
        condition: ChannelHealthTracker | None = None,
    ) -> None:
        """A process that is started with the first request; `on_empty` is awaited when the last client has left."""
        super().__init__(spec, opener, timeout_seconds, condition)
        self._on_empty = on_empty
        self._greeting: SharedInitialize | None = None
        self._initialized = False
        self._result: Raw | None = None
        """The result of the handshake; None before it came."""
        self._client_links: list[SharedClientLink] = []
        self._subscribers: dict[str, set[SharedClientLink]] = {}
        self._questions: dict[bytes, tuple[SharedClientLink, bytes]] = {}

    @property
    def requests(self) -> list[SharedRequest]:
        """The requests in flight of all clients."""
        replies = [waiting.reply for waiting in self.pending.by_key.values()]
        return [reply for reply in replies if isinstance(reply, SharedRequest)]

    def attach(self, message_handler: ServerMessageHandler) -> SharedClientLink:
        """Return a link for one more client."""
        client_link = SharedClientLink(self, message_handler)
        self._client_links.append(client_link)
        return client_link

    async def leave(self, client_link: SharedClientLink) -> None:
        """A client disconnected: its subscriptions end, and requests to it are refused."""
        self._client_links.remove(client_link)
        for uri in [uri for uri, client_links in self._subscribers.items() if client_link in client_links]:
            if self.unsubscribe(client_link, uri):
                params = jsonrpc.encode({"uri": uri})
                self.send(jsonrpc.request(self.number(), "resources/unsubscribe", params))
                self.handshake.forget(uri)
        for own in [own for own, (asked, _) in self._questions.items() if asked is client_link]:
            _, theirs = self._questions.pop(own)
            self.send(jsonrpc.error(theirs, jsonrpc.UPSTREAM_UNAVAILABLE, "The client has left"))
        if not self._client_links:
            await self._on_empty(self)

    def greet(self, message: Message, reply: UpstreamRequest) -> None:
        """A client opens with `initialize`; those that do so while the first one waits share its answer."""
        if self._result is not None:
            reply.replied(jsonrpc.result(message.id or b"null", self._result))
            return
        if self._greeting is not None and not self._greeting.is_over:
            self._greeting.replies.append(reply)
            return
        self._greeting = SharedInitialize(message)
        self._greeting.replies.append(reply)
        self.request(message, self._greeting)

    def leave_greeting(self, reply: UpstreamRequest) -> bool:
        """A client gave its `initialize` up, which goes on for the others; False when it was not waiting for one."""
        greeting = self._greeting
        if greeting is None or greeting.is_over or reply not in greeting.replies:
            return False
        greeting.replies.remove(reply)
        return True

    def finish_greeting(self, message: Message) -> None:
        """A client is initialized; the server is notified once."""
        if not self._initialized and self._result is not None:
            self._initialized = True
            self.send(message)

    def subscribe(self, client_link: SharedClientLink, uri: str) -> None:
        """The client subscribes to a resource."""
        self._subscribers.setdefault(uri, set()).add(client_link)

    def unsubscribe(self, client_link: SharedClientLink, uri: str) -> bool:
        """The client unsubscribes; return True if it was the last subscriber."""
        client_links = self._subscribers.get(uri, set())
        client_links.discard(client_link)
        if not client_links:
            self._subscribers.pop(uri, None)
        return not client_links

    def answer(self, client_link: SharedClientLink, response: Message) -> None:
        """A client answers a question; an answer to a question that it was not asked is dropped."""
        own = response.id or b"null"
        asked, theirs = self._questions.get(own, (None, b""))
        if asked is client_link:
            del self._questions[own]
            self.send(response.replace(id=theirs))

    def on_open(self, handshake: Message | None) -> None:
        self._initialized = handshake is not None
        if handshake is not None:
            self._result = handshake.result

    def respond(self, request: PendingRequest, response: Message) -> None:
        asked = request.reply.message
        self.handshake.note(asked, response)
        if asked.method == "initialize" and response.result:
            self._result = response.result
        super().respond(request, response)

    def on_down(self) -> None:
        self._questions.clear()

    def relay(self, message: Message) -> None:
        if message.method == "notifications/progress":
            super().relay(message)
        elif message.id is not None:
            self._asked(message)
        elif message.method == "notifications/cancelled":
            self._withdrawn(message)
        elif message.method == "notifications/message" and (waiting := self.pending.only) is not None:
            waiting.relate(message)
        elif message.method == "notifications/resources/updated":
            self._announce(message, self._listeners(message))
        else:
            self._announce(message, self._client_links)

    def _asked(self, message: Message) -> None:
        theirs = message.id or b"null"
        if message.method == "ping":  # asks after the connection, which is riglm's
            self.send(jsonrpc.result(theirs, b"{}"))
            return
        client_link = self._concerned()
        if client_link is None:
            self.send(jsonrpc.error(theirs, jsonrpc.METHOD_NOT_FOUND, _REFUSAL))
            return
        own = b'"riglm-%b"' % self.number()
        self._questions[own] = (client_link, theirs)
        question = message.replace(id=own)
        waiting = self.pending.only
        if waiting is not None:
            waiting.relate(question)
        else:
            self._announce(question, [client_link])

    def _concerned(self) -> SharedClientLink | None:
        """The client that a question is for: the only one with requests in flight, or the only one there is."""
        asking = {asked.client_link for asked in self.requests}
        found = asking or set(self._client_links)
        return found.pop() if len(found) == 1 else None

    def _withdrawn(self, message: Message) -> None:
        """The server takes a question back."""
        theirs = bytes(jsonrpc.members(message.params).get("requestId", b""))
        for own, (client_link, asked) in self._questions.items():
            if asked == theirs:
                del self._questions[own]
                params = jsonrpc.with_member(message.params, ("requestId",), own)
                self._announce(message.replace(params=params), [client_link])
                return

    def _listeners(self, message: Message) -> set[SharedClientLink]:
        """The clients that subscribed to a resource, or to one that it is a part of."""
        uri = jsonrpc.text(jsonrpc.members(message.params).get("uri")) or ""
        found: set[SharedClientLink] = set()
        for subscribed, client_links in self._subscribers.items():
            if uri == subscribed or uri.startswith(subscribed.rstrip("/") + "/"):
                found |= client_links
        return found

    @staticmethod
    def _announce(message: Message, client_links: Iterable[SharedClientLink]) -> None:
        for client_link in list(client_links):
            client_link.message_handler.unsolicited(client_link, message)
