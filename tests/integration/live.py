"""A riglm with a control configuration in this process, a real server over HTTP behind it, and clients in front."""

import asyncio
import itertools
import json
from contextlib import asynccontextmanager
from pathlib import Path

from riglm.adapters.configuration.loading import Options, load
from riglm.adapters.mcp.upstream.upstreams import Upstreams
from riglm.container import Container
from riglm.domain import jsonrpc
from riglm.domain.session import Transport
from riglm.lifespan import lifespan
from riglm.ports.downstream import Caller, ClientChannel, ClientResponseSink
from tests.unit.adapters.upstream.web import WebServer, reply, result
from tests.unit.adapters.wire.peers import serving
from tests.waiting import WAIT_SECONDS

PATIENCE = WAIT_SECONDS
TOOLS = tuple(f"tool{number:02}" for number in range(40))

FILE = """\
# for the tests
upstream: {{url: "{url}"}}   # the server

control:
  enabled: true
embedder: {{provider: static}}   # no model
storage: {{kind: memory}}
filtering:      # what is shown
    max_tools:   7   # few
    min_tools: 1
    pinned: [search_available_tools, call_tool, set_context, mark_tool, index_status]   # though nothing is hidden
    denylist:
      - "tool39"  # never
"""


class Upstream(WebServer):
    """Has forty tools; a tool answers with its name, `slow` when it is told to."""

    description_length = 200

    def __init__(self):
        super().__init__()
        self.go_on = asyncio.Event()
        self.slow_has_begun = asyncio.Event()
        self.list_may_come = asyncio.Event()
        self.list_may_come.set()
        self.list_was_asked = asyncio.Event()
        self.handlers = {"initialize": self._initialize, "tools/list": self._list, "tools/call": self._call}

    async def _initialize(self, caller, message, request):
        capabilities = {"tools": {"listChanged": True}}
        info = {"name": "tools", "version": "1"}
        await caller.say(
            reply(
                result(message, {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}),
                headers=b"Mcp-Session-Id: s1\r\n",
            )
        )

    async def _list(self, caller, message, request):
        self.list_was_asked.set()
        await self.list_may_come.wait()
        tools = [
            {"name": name, "description": "x" * self.description_length, "inputSchema": {"type": "object"}}
            for name in TOOLS
        ]
        await caller.say(reply(result(message, {"tools": tools})))

    async def _call(self, caller, message, request):
        if message["params"]["name"] == "tool00":
            self.slow_has_begun.set()
            await self.go_on.wait()
        await caller.say(reply(result(message, {"content": [{"type": "text", "text": message["params"]["name"]}]})))


class Told(ClientChannel):
    """What a client is told beside its answers."""

    def __init__(self):
        self.methods = []
        self.changed = asyncio.Event()

    def push(self, message):
        self.methods.append(message.method)
        self.changed.set()
        return True


class Answers(ClientResponseSink):
    """The answers to a client's requests, by id."""

    def __init__(self):
        self.waiting = {}

    def related(self, message):
        pass

    def replied(self, message, status=200):
        self.waiting.pop(jsonrpc.plain(message.id)).set_result(message)


class Client:
    """A client of the handshake era."""

    def __init__(self, proxy):
        self.told = Told()
        self._answers = Answers()
        self._connection = proxy.connect(Caller(transport=Transport.STDIO), self.told, self._answers)
        self._numbers = itertools.count(1)

    async def begin(self):
        """Shake hands."""
        info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        answer = await self.ask("initialize", info)
        self._connection.receive_line(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return answer

    def send(self, method, params=None):
        """A request, and its answer to come."""
        number = next(self._numbers)
        waiting = self._answers.waiting[number] = asyncio.get_running_loop().create_future()
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
        self._connection.receive_line(json.dumps(message).encode())
        return waiting

    async def ask(self, method, params=None):
        """The raw answer."""
        async with asyncio.timeout(PATIENCE):
            return await self.send(method, params)

    async def listed(self):
        """The names in the list."""
        answer = await self.ask("tools/list")
        return [tool["name"] for tool in json.loads(bytes(answer.result))["tools"]]

    async def call(self, name):
        """What a tool says; None when it could not be called."""
        answer = await self.ask("tools/call", {"name": name, "arguments": {}})
        return json.loads(bytes(answer.result))["content"][0]["text"] if answer.result else None

    async def close(self):
        """Leave."""
        await self._connection.close()


class Stage:
    """All of it."""

    def __init__(self, proxy, container, file, upstream):
        self.proxy = proxy
        self.container = container
        self.live = container.live_configuration()
        self.file = file
        self.upstream = upstream
        self.clients = []

    async def client(self):
        """A client that shook hands."""
        client = Client(self.proxy)
        self.clients.append(client)
        await client.begin()
        return client


@asynccontextmanager
async def visibility(folder: Path, text: str = FILE, environment=None, values=()):
    """A riglm that was started with this file."""
    upstream = Upstream()
    async with serving(upstream) as served:
        file = folder / "riglm.yaml"
        file.write_text(text.format(url=served.url), "utf-8")
        options = Options(config=file, values=values)
        configuration = load(options, environment=environment or {}, directory=folder)
        container = Container(settings=configuration.settings, configuration=configuration)
        settings = configuration.settings
        upstreams = Upstreams(settings.upstream_specs(), settings.timeouts, settings.limits.message_bytes)
        async with lifespan(container, upstreams) as proxy:
            stage = Stage(proxy, container, file, upstream)
            try:
                yield stage
            finally:
                upstream.go_on.set()
                upstream.list_may_come.set()
                for client in stage.clients:
                    await client.close()
