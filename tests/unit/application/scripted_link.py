"""An upstream, its links and a client that do nothing by themselves and keep all that they are given."""

import asyncio

from riglm.domain import jsonrpc
from riglm.domain.upstream import UpstreamHealth, UpstreamSpec
from riglm.ports.downstream import NO_HEADERS
from riglm.ports.upstream import OutboundRequest, ServerMessageHandler, UpstreamLink, UpstreamPort
from tests.waiting import WAIT_SECONDS

SPEC = UpstreamSpec(name="far", kind="http", url="http://127.0.0.1:1/mcp")


class Asked:
    """A request that reached a link."""

    def __init__(self, message, reply):
        self.message = message
        self.reply = reply

    @property
    def line(self):
        return self.message.line

    def result(self, raw):
        self.reply.replied(jsonrpc.result(self.message.id, raw))

    def error(self, raw, status=200):
        line = b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (self.message.id, raw)
        self.reply.replied(jsonrpc.decode(line), status)

    def says(self, method, params):
        self.reply.related(jsonrpc.notification(method, params))


class Link(UpstreamLink):
    """Keeps what goes over it."""

    def __init__(self):
        self.spec = SPEC
        self.asked = []
        self.sent = []
        self.cancelled = []
        self.listening = []
        self.closed = False
        self._more = asyncio.Condition()

    def request(self, message, reply):
        self.asked.append(Asked(message, reply))
        self._tasks = asyncio.get_running_loop().create_task(self._notify())

    def send(self, message):
        self.sent.append(message.line)

    def cancel(self, reply, notice):
        self.cancelled.append((reply.message.id, notice and notice.line))

    def listen(self, *, listening):
        self.listening.append(listening)

    def resume(self, last_event_id, stream):
        stream.ended()

    async def close(self):
        self.closed = True

    @property
    def lines(self):
        return [one.line for one in self.asked]

    async def until(self, count):
        """The last of so many requests, as soon as it is there."""
        async with asyncio.timeout(WAIT_SECONDS), self._more:
            await self._more.wait_for(lambda: len(self.asked) >= count)
        return self.asked[count - 1]

    async def _notify(self):
        async with self._more:
            self._more.notify_all()


class Upstream(UpstreamPort):
    """One link for the modern era, and one for each connection of the handshake era."""

    def __init__(self, **eras):
        self.spec = SPEC
        self.eras = dict(eras)
        self.modern = Link()
        self.connections = []

    def connect(self, message_handler, principal=""):
        self.connections.append(Link())
        return self.connections[-1]

    def stateless(self, message_handler):
        return self.modern

    def supports(self, era):
        return self.eras.get(era.value)

    def learned(self, era, *, supported):
        self.eras[era.value] = supported

    def health(self):
        return UpstreamHealth(name=self.spec.name)

    async def close(self):
        pass


class Client(OutboundRequest, ServerMessageHandler):
    """Keeps what one request got, and what came of the upstream's own accord."""

    headers = NO_HEADERS
    resumable = False

    def __init__(self, message=None):
        self.message = message
        self.got = []
        self.outcome = None

    def related(self, message, event=None):
        self.got.append((message.line, event) if event else message.line)

    def primed(self, event):
        self.got.append(event)

    def replied(self, message, status=200, event=None):
        assert self.outcome is None
        assert status == 200
        self.outcome = message.line

    def failed(self, kind, words):
        assert self.outcome is None
        self.outcome = (kind, words)

    def interrupted(self):
        self.got.append("interrupted")

    def unsolicited(self, link, message, event=None):
        self.got.append(message.line)
