import asyncio

from tests.interaction import text
from tests.interaction.clients.raw import HANDSHAKE
from tests.interaction.route import CORNERS, RIGLM, Route, routes
from tests.interaction.stage import Stage
from tests.otlp import CLIENT, SERVER, Collected, collecting
from tests.waiting import WAIT_SECONDS, wait_until_async

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{CALLER}-01"
CANARY = "canary-in-arguments-90c1b7"
META = {"traceparent": PARENT, "tracestate": "vendor=1,other=x", "baggage": "user=%41,k=v", "vendor/x": 1.0}
WITHIN = WAIT_SECONDS
KINDS = (SERVER, CLIENT)


def sent_to(url: str, **more: str) -> dict[str, str]:
    """The environment of a riglm that sends its spans there, soon."""
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "50", **more}


def calls(spans: list[Collected], kind: int) -> list[Collected]:
    """The spans of calls, in the order in which they ended."""
    return [span for span in spans if (span.kind, span.name) == (kind, "tools/call")]


@routes(CORNERS)
async def test_a_clients_trace_goes_on_through_riglm_to_the_server(stage: Stage, route: Route):
    log = stage.log()
    with collecting() as collector:
        async with stage.client(route, env=sent_to(collector.url, OTEL_SERVICE_NAME="mine")) as client:
            await client.call("nonce", {"nonce": CANARY}, meta=META)
            await client.call("is_error", {"secret": CANARY})
            await client.call("fail", {"code": -31999, "message": CANARY})
            await wait_until_async(lambda: all(len(calls(collector.spans, kind)) == 3 for kind in KINDS), "the spans")
    handled, asked_for = (calls(collector.spans, kind) for kind in KINDS)
    served, asked = handled[0], asked_for[0]
    assert (served.trace, served.parent, served.state) == (TRACE, CALLER, META["tracestate"])
    assert (asked.trace, asked.parent) == (TRACE, served.span)
    received = log.received("tools/call")[0]
    meta = text.value(text.members(received.parts["params"])["_meta"])
    assert meta["traceparent"] == f"00-{TRACE}-{asked.span}-01"
    assert {name: meta[name] for name in ("tracestate", "baggage", "vendor/x")} == {
        name: META[name] for name in ("tracestate", "baggage", "vendor/x")
    }
    assert [span.failed for span in handled] == [False, True, True]
    assert [span.attributes.get("error.type") for span in asked_for] == [None, "tool_error", "-31999"]
    assert [span.attributes["gen_ai.tool.name"] for span in handled] == ["nonce", "is_error", "fail"]
    for span in collector.spans:
        assert span.resource["service.name"] == "mine"
        assert span.attributes["mcp.method.name"] == span.name
        assert span.attributes["network.transport"] == ("pipe" if route.front == "stdio" else "tcp")
    by_trace = {span.span: span.trace for span in collector.spans}
    for span in asked_for[1:]:
        assert by_trace[span.parent] == span.trace != TRACE
    assert CANARY.encode() not in b"".join(collector.bodies)


@routes(CORNERS)
async def test_without_tracing_the_trace_context_passes_byte_for_byte(stage: Stage, route: Route):
    log = stage.log()
    odd = b'{"traceparent":"%b" , "tracestate":"\\u0061=1","baggage":1.50}' % PARENT.encode()
    with collecting() as collector:
        env = sent_to(collector.url, RIGLM_TRACING__ENABLED="false")
        async with stage.client(route, env=env) as client:
            exchange = await client.start_call("nonce", {"nonce": "1"}, meta=odd)
            await exchange.answer()
    assert log.received("tools/call")[0].parts["params"] == exchange.params
    assert collector.bodies == []


async def test_a_collector_that_hangs_holds_up_neither_calls_nor_the_end(stage: Stage):
    route = Route("stdio", "stdio", RIGLM, HANDSHAKE)
    with collecting(hangs=True) as collector:
        async with stage.client(route, env=sent_to(collector.url)) as client:
            await client.call("nonce", {"nonce": "1"})
            await asyncio.to_thread(collector.asked.wait, WITHIN)
            await client.call("nonce", {"nonce": "2"})
            await asyncio.gather(*(client.call("counter") for _ in range(50)))
