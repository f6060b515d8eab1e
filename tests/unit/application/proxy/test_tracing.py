"""Every request of a client is a span, and every request to a server for it is one within."""

import json
from dataclasses import replace

import pytest

from riglm.application.proxy.proxy_service import ProxyService
from riglm.domain import jsonrpc
from riglm.domain.session import Transport
from riglm.ports.downstream import Caller
from riglm.ports.telemetry import Span, TracerPort
from tests.unit.application.fakes import Channel, Server, Sink, World, asks, settle

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "c"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Made(Span):
    """A span that a test looks at."""

    def __init__(self, name, attributes, within=None, carrier=None):
        self.name = name
        self.attributes = dict(attributes)
        self.within = within
        self.came_with = carrier
        self.ends = []

    def carrier(self):
        return {"traceparent": f"of-{self.name}"}

    def ended(self, error=None, code=None):
        self.ends.append((error, code))


class Tracer(TracerPort):
    """Keeps all spans."""

    def __init__(self):
        self.served_spans = []
        self.asked_spans = []

    def served(self, name, attributes, carrier):
        self.served_spans.append(Made(name, attributes, carrier=dict(carrier)))
        return self.served_spans[-1]

    def asked(self, name, attributes, within):
        self.asked_spans.append(Made(name, attributes, within))
        return self.asked_spans[-1]


class Stage(World):
    """A client in front of servers, with every span in sight."""

    def __init__(self, *servers, naming="prefix"):
        super().__init__()
        self.tracer = Tracer()
        self.servers = servers or (Server("up"),)
        self.proxy = ProxyService(replace(self.parts, tracer=self.tracer), self.servers, naming)
        self.sink, self.channel = Sink(), Channel()
        self.connection = self.proxy.connect(Caller(transport=Transport.STDIO), self.channel, self.sink)

    @property
    def link(self):
        return self.servers[0].link

    def send(self, number, method, params=b"{}"):
        self.connection.receive_line(asks(number, method, params).line)

    def call(self, number, name="t", **meta):
        self.send(number, "tools/call", json.dumps({"name": name, "_meta": meta}).encode())

    def cancel(self, number):
        params = b'{"requestId":%d}' % number
        self.connection.receive_line(jsonrpc.notification("notifications/cancelled", params).line)

    @property
    def served(self):
        return self.tracer.served_spans

    @property
    def asked(self):
        return self.tracer.asked_spans


@pytest.fixture
def stage():
    return Stage()


async def test_attributes_are_names_and_nothing_that_was_said(stage):
    stage.send(1, "tools/call", b'{"name":"t","arguments":{"secret":"canary"}}')
    await settle()
    stage.send(2, "prompts/get", b'{"name":"p","arguments":{"secret":"canary"}}')
    await settle()
    stage.send(3, "resources/read", b'{"uri":"file:///canary"}')
    await settle()
    call, prompt, resource = (span.attributes for span in stage.served)
    about = {"mcp.method.name": "tools/call", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "t"}
    assert call == {**about, "network.transport": "pipe"}
    assert prompt == {"mcp.method.name": "prompts/get", "gen_ai.prompt.name": "p", "network.transport": "pipe"}
    assert resource == {"mcp.method.name": "resources/read", "network.transport": "pipe"}
    assert stage.asked[0].attributes == {**about, "network.transport": "tcp", "riglm.upstream": "up"}


async def test_how_a_request_ends_is_how_its_spans_end(stage):
    for number in range(1, 5):
        stage.call(number)
        await settle()
    refused, failed, gone, fine = stage.link.asked
    refused.error(-31999)
    failed.result(b'{"content":[],"isError":true}')
    gone.dies()
    fine.result()
    assert [span.ends for span in stage.asked] == [
        [("-31999", -31999)],
        [("tool_error", None)],
        [("unavailable", None)],
        [(None, None)],
    ]
    assert [span.ends for span in stage.served] == [
        [("-31999", -31999)],
        [("tool_error", None)],
        [("-32000", -32000)],
        [(None, None)],
    ]


async def test_a_request_of_the_modern_era_is_a_span_whether_it_ends_or_is_given_up(stage):
    stage.servers[0].eras = {}
    for number in (1, 2):
        stage.call(number, **MODERN, traceparent=PARENT)
        await settle()
    (probe,) = stage.link.of("server/discover")
    probe.result(b'{"supportedVersions":["2026-07-28"]}')
    await settle()
    one, _ = stage.link.of("tools/call")
    one.result()
    stage.cancel(2)
    assert [span.ends for span in stage.served] == [[(None, None)], [("cancelled", None)]]
    assert [span.attributes["mcp.protocol.version"] for span in stage.served] == ["2026-07-28"] * 2


async def test_all_but_the_trace_passes_byte_for_byte(stage):
    stage.send(1, "vendor/x", b'{"a":1.50,"b":"\\u0061","_meta":{"progressToken":7.0,"baggage":"k=\\u0061"},"c":[ 1 ]}')
    await settle()
    (request,) = stage.link.asked
    meta = b'{"progressToken":7.0,"baggage":"k=\\u0061","traceparent":"of-vendor/x"}'
    assert bytes(request.message.params) == b'{"a":1.50,"b":"\\u0061","_meta":%b,"c":[ 1 ]}' % meta
