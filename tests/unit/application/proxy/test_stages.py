"""The stages of a request: the same in both eras and in front of any number of servers, and none costs a reply."""

import pytest

from riglm.application.proxy.proxy_service import ProxyService
from riglm.application.proxy.stage import Stage as Base
from riglm.application.proxy.stages import STAGES
from riglm.domain import jsonrpc, request_params
from riglm.domain.session import Transport
from riglm.ports.downstream import Caller
from tests.unit.application.fakes import Channel, Server, Sink, asks, opened, settle, tools
from tests.unit.application.proxy.scripted import ShowingWorld

CALLER = Caller(transport=Transport.HTTP)
META = (
    b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}'
)


class Stage(ShowingWorld):
    """A client of either era, in front of one server or two."""

    def __init__(self, era, servers):
        super().__init__()
        answers = {"initialize": opened("tools"), "tools/list": tools("t"), "tools/call": b"{}"}
        names = ("up", "far")[:servers]
        self.proxy = ProxyService(self.parts, [Server(name, answers, modern=True, handshake=True) for name in names])
        self.connection = self.proxy.connect(CALLER, Channel())
        self.era = era
        self.tool = "up__t" if servers > 1 else "t"

    async def ask(self, method, fields=b""):
        sink = Sink()
        if self.era == "modern":
            message = asks(7, method, b"{%b}" % b",".join(filter(None, (fields, META))))
            self.proxy.receive_modern(message, request_params.envelope(message), sink, CALLER)
        else:
            self.connection.receive(asks(7, method, b"{%b}" % fields), sink)
        return await sink.answer()

    async def call(self):
        return await self.ask("tools/call", b'"name":%b' % jsonrpc.encode(self.tool))


def watch(proxy, seen):
    """Note the stages that requests pass from now on."""
    for stage in proxy._stages:
        for name in ("before", "after"):
            if getattr(type(stage), name) is not getattr(type(stage).__mro__[-2], name):
                method = getattr(stage, name)

                def noted(*given, stage=stage, name=name, method=method):
                    seen.append((name, type(stage).__name__))
                    return method(*given)

                setattr(stage, name, noted)
    proxy._plans.clear()


@pytest.mark.parametrize("method", ["tools/list", "tools/call"])
async def test_the_stages_are_the_same_in_both_eras_and_with_one_and_two_servers(method, capsys):
    passed = {}
    for era in ("handshake", "modern"):
        for servers in (1, 2):
            stage, seen = Stage(era, servers), []
            watch(stage.proxy, seen)
            await (stage.call() if method == "tools/call" else stage.ask(method))
            passed[era, servers] = [name for kind, name in seen if kind == "before"]
            await stage.connection.close()
    first, *others = passed.values()
    with capsys.disabled():
        print(f"\n{method}: {' > '.join(first)}")  # noqa: T201  # it is meant to be read
    assert [each for each in others if each[: len(first)] != first[: len(each)]] == []
    order = [stage.__name__ for stage in STAGES]
    assert first == sorted(first, key=order.index)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("name", [stage.__name__ for stage in STAGES if stage.is_used(ShowingWorld().parts)])
@pytest.mark.parametrize("step", ["before", "after"])
async def test_a_stage_that_fails_costs_no_reply_and_opens_no_denied_tool(name, step, waits):
    stage = Stage("handshake", 1)
    [failing] = [each for each in stage.proxy._stages if type(each).__name__ == name]

    async def fail_later():
        raise ZeroDivisionError

    def fail(*_):
        if waits:
            return fail_later()
        raise ZeroDivisionError

    has_step = getattr(type(failing), step) is not getattr(Base, step)
    setattr(failing, step, fail)
    reply = await stage.call()
    await settle()
    is_passed = failing.methods is not None and "tools/call" not in failing.methods
    assert bool(reply.error) == (failing.fails_closed and has_step and not is_passed)
    assert stage.connection.requests == {}
