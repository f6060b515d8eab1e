"""What riglm takes of a call is all the time but its server's."""

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from riglm.application.forwarding import proxied_request
from riglm.application.forwarding.proxied_request import OverheadMeter
from riglm.application.proxy import ProxyService
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.session import Transport
from riglm.ports.downstream import Caller
from tests.unit.application.fakes import Channel, Clock, Server, Sink, World, asks, opened, tools

READING, NOTING, WRITING, SERVER = 0.5, 0.25, 0.125, 100.0


class Meter:
    """Keeps what calls took."""

    def __init__(self):
        self.took = []

    def held(self, upstream, seconds):
        self.took.append((upstream, seconds))


class SlowSink(Sink):
    """Takes a while to write an answer down."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def replied(self, message, status=200, event=None):
        self.clock.now += WRITING
        super().replied(message, status, event)


class SlowObserver:
    """Takes a while to note a call."""

    def __init__(self, clock):
        self.clock = clock

    def calling(self, session, tool, given, known):
        self.clock.now += NOTING
        return DiscoveryMethod.LISTED, lambda _: None


class Stage(World):
    """A client in front of servers, by a clock that only moves where it is told to."""

    def __init__(self, clock, *servers):
        super().__init__()
        self.clock, self.meter = clock, Meter()
        services = replace(self.services, overhead=OverheadMeter(self.meter), on_call=SlowObserver(clock).calling)
        self.servers = servers
        self.proxy = ProxyService(services, servers, "on_collision")
        self.sink = SlowSink(clock)
        self.connection = self.proxy.connect(Caller(transport=Transport.STDIO), Channel(), self.sink)
        read = self.proxy.arrived

        def arrived():
            read()
            clock.now += READING

        self.connection._arrived = arrived

    def send(self, number, method, params=b"{}"):
        self.connection.received(asks(number, method, params).line)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(proxied_request, "time", SimpleNamespace(perf_counter=clock, time=time.time))
    return clock


async def test_waiting_for_the_list_that_tells_where_a_call_goes_is_not_riglms(clock):
    answers = {"initialize": opened("tools"), "tools/list": tools("t")}
    _, other = servers = Server("a", dict(answers)), Server("b", dict(answers))
    stage = Stage(clock, *servers)
    stage.send(1, "initialize", b'{"protocolVersion":"2025-11-25","capabilities":{}}')
    stage.send(2, "tools/list")
    await stage.sink.until(lambda: len(stage.sink.answers) == 2)
    other.answers["tools/list"] = None
    other.link.says(b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')
    stage.send(3, "tools/call", b'{"name":"new"}')
    _, listing = await other.link.until(lambda: len(other.link.of("tools/list")) > 1 and other.link.of("tools/list"))
    clock.now += SERVER
    listing.result(tools("t", "new"))
    (asked,) = await other.link.until(lambda: other.link.of("tools/call"))
    clock.now += SERVER
    asked.result()
    assert stage.meter.took == [("b", NOTING + WRITING)]
