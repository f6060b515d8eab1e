"""A small world for the inside: servers in memory that answer when told to, a clock, and records in a list."""

import asyncio

from riglm.application.proxy.catalogs import StoredCatalogs
from riglm.application.proxy.parts import ProxyParts
from riglm.application.sessions.registry import IdentificationSettings, SessionRegistry
from riglm.application.tracking.tracking_service import TrackingService
from riglm.domain import jsonrpc
from riglm.domain.exposure import Exposure
from riglm.domain.hashing import KeyedHasher
from riglm.domain.invocation import ErrorKind, ToolInvocation
from riglm.domain.session import ProtocolEra, Session
from riglm.domain.tool import StoredToolCatalog
from riglm.domain.upstream import UpstreamHealth, UpstreamSpec
from riglm.ports.analytics import SessionClosed
from riglm.ports.downstream import NO_HEADERS, ClientChannel, ClientResponseSink
from riglm.ports.upstream import ServerMessageHandler, UpstreamLink, UpstreamPort, UpstreamRequest
from tests.waiting import WAIT_SECONDS


async def settle():
    """Let everything happen that needs no more than the event loop."""
    for _ in range(30):
        await asyncio.sleep(0)


class Clock:
    """Time that passes when it is told to."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Records:
    """What was recorded, in order."""

    def __init__(self):
        self.all = []

    def put(self, item, size):
        self.all.append(item() if callable(item) else item)

    def of(self, kind):
        return [item for item in self.all if isinstance(item, kind)]

    @property
    def calls(self):
        return [(note.tool, note.upstream, note.error_kind, note.found) for note in self.of(ToolInvocation)]

    @property
    def shown(self):
        return [exposure.shown for exposure in self.of(Exposure)]

    @property
    def catalogs(self):
        return self.of(StoredToolCatalog)

    @property
    def opened(self):
        return {session.id for session in self.of(Session)}

    @property
    def closed(self):
        return [closed.session_id for closed in self.of(SessionClosed)]


class World:
    """The services of one process, with everything recorded in a list."""

    def __init__(self, *, grace=0.05, longest_list=0.05, catalogs=(), find_project=lambda _: "", **evidence):
        self.clock = Clock()
        self.records = Records()
        self.hasher = KeyedHasher(bytes(32))
        self.tracking = TrackingService(self.records.put, self.hasher, "raw")
        self.sessions = SessionRegistry(
            self.tracking,
            self.hasher,
            IdentificationSettings(**evidence),
            find_project=find_project,
            monotonic=self.clock,
            clock=self.clock,
        )
        stored = StoredCatalogs(self.hasher, self.records.put, clock=self.clock)
        stored.load((), lambda _: catalogs)
        self.parts = ProxyParts(
            tracking=self.tracking, sessions=self.sessions, catalogs=stored, grace=grace, longest_list=longest_list
        )


class Watched:
    """Something that grows, and that a test can wait for."""

    def __init__(self):
        self._changed = asyncio.Event()

    def changed(self):
        self._changed.set()

    async def until(self, holds):
        """Wait until `holds()` is true, and give what it gives."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not (found := holds()):
                self._changed.clear()
                await self._changed.wait()
            return found


class Sink(Watched, ClientResponseSink):
    """Keeps what one request got."""

    def __init__(self):
        super().__init__()
        self.got = []

    @property
    def answers(self):
        return [jsonrpc.decode(each[1]) for each in self.got if each[0] == "replied"]

    @property
    def notes(self):
        return [each[1] for each in self.got if each[0] == "related"]

    async def answer(self):
        """The one answer, as soon as it is there."""
        (answer,) = await self.until(lambda: self.answers)
        return answer

    def related(self, message):
        self._add("related", message.line)

    def replied(self, message, status=200):
        self._add("replied", message.line, status)

    def _add(self, *what):
        self.got.append(what)
        self.changed()


class Channel(Watched, ClientChannel):
    """Keeps what a client is told outside of its requests, while it listens."""

    def __init__(self):
        super().__init__()
        self.told = []
        self.is_open = True

    def push(self, message):
        if self.is_open:
            self.told.append(message.line)
        self.changed()
        return self.is_open


class Asked:
    """A request that reached a server."""

    def __init__(self, message, reply):
        self.message = message
        self.reply = reply

    @property
    def method(self):
        return self.message.method

    @property
    def line(self):
        return self.message.line

    def result(self, raw=b"{}"):
        self.reply.replied(jsonrpc.result(self.message.id, raw))

    def error(self, code, words="no"):
        self.reply.replied(jsonrpc.error(self.message.id, code, words))

    def dies(self, words="died"):
        self.reply.failed(ErrorKind.UNAVAILABLE, words)

    def refused(self, raw):
        self.reply.replied(jsonrpc.decode(b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (self.message.id, raw)))

    def says(self, line):
        self.reply.related(jsonrpc.decode(line))

    def notifies(self, method, params):
        self.reply.related(jsonrpc.notification(method, params))


class Link(Watched, UpstreamLink):
    """A way to a server in memory: keeps what goes over it, and answers what its server has an answer for at once."""

    def __init__(self, server, message_handler):
        super().__init__()
        self.spec = server.spec
        self.server = server
        self.message_handler = message_handler
        self.asked = []
        self.sent = []
        self.cancelled = []
        self.listening = []
        self.closed = 0

    def request(self, message, reply):
        asked = Asked(message, reply)
        self.asked.append(asked)
        self.changed()
        answer = self.server.answers.get(message.method)
        if callable(answer):
            answer(asked)
        elif answer is not None:
            asked.result(answer)

    def send(self, message):
        self.sent.append(message.line)
        self.changed()

    def cancel(self, reply, notice):
        self.cancelled.append((reply.message.id, notice and notice.line))
        self.changed()

    def listen(self, *, listening):
        self.listening.append(listening)

    async def close(self):
        self.closed += 1

    def says(self, line):
        """The server says something of its own accord."""
        self.message_handler.unsolicited(self, jsonrpc.decode(line))

    def of(self, method):
        return [asked for asked in self.asked if asked.method == method]

    @property
    def methods(self):
        return [asked.method for asked in self.asked]

    @property
    def lines(self):
        return [asked.line for asked in self.asked]

    async def next(self, method, count=1):
        """The request of this method, or the so-manieth of them, as soon as it is there."""
        await self.until(lambda: len(self.of(method)) >= count)
        return self.of(method)[count - 1]


class Server(UpstreamPort):
    """A server in memory. `answers` holds a raw result by method, or something that takes the request."""

    def __init__(self, name, answers=None, **eras):
        self.spec = UpstreamSpec(name=name, kind="http", url="http://127.0.0.1:1/mcp")
        self.answers = dict(answers or {})
        self.eras = {ProtocolEra(era): known for era, known in eras.items()}
        self.links = []
        self.shared = None
        self.closed = 0

    @property
    def link(self):
        """The latest link of a client of the handshake era, or else the one that all share."""
        return self.links[-1] if self.links else self.shared

    def connect(self, message_handler, principal=""):
        self.links.append(Link(self, message_handler))
        return self.links[-1]

    def stateless(self, message_handler):
        if self.shared is None:
            self.shared = Link(self, message_handler)
        return self.shared

    def supports(self, era):
        return self.eras.get(era)

    def learned(self, era, *, supported):
        self.eras[era] = supported

    def health(self):
        return UpstreamHealth(name=self.spec.name)

    async def close(self):
        self.closed += 1


class Client(UpstreamRequest, ServerMessageHandler):
    """Keeps what one request got, and what came of the upstream's own accord."""

    headers = NO_HEADERS

    def __init__(self, message=None):
        self.message = message
        self.got = []
        self.outcome = None

    def related(self, message):
        self.got.append(message.line)

    def paused(self, retry_ms):
        self.got.append(retry_ms)

    def replied(self, message, status=200):
        assert self.outcome is None
        assert status == 200
        self.outcome = message.line

    def failed(self, kind, words):
        assert self.outcome is None
        self.outcome = (kind, words)

    def unsolicited(self, link, message):
        self.got.append(message.line)


def listed(member, key, *names, **more):
    """The raw result of a list."""
    return jsonrpc.encode({member: [{key: name} for name in names], **more})


def tools(*names, **more):
    """The raw result of a `tools/list`."""
    return listed("tools", "name", *names, **more)


def opened(*capabilities, announces=True, **more):
    """The raw result of an `initialize`."""
    offered = {name: {"listChanged": True} if announces else {} for name in capabilities}
    return jsonrpc.encode({"protocolVersion": "2025-11-25", "capabilities": offered, **more})


def asks(number, method, params=b"{}"):
    """A request of a client."""
    return jsonrpc.request(b"%d" % number, method, params)
