import sys
from types import SimpleNamespace

from riglm.adapters.mcp.upstream.http_upstream import HttpUpstream
from riglm.adapters.mcp.upstream.sse_upstream import SseUpstream
from riglm.adapters.mcp.upstream.stdio_upstream import StdioUpstream
from riglm.adapters.mcp.upstream.upstreams import Upstreams
from riglm.domain.session import ProtocolEra
from riglm.domain.upstream import UpstreamSpec

TIMEOUTS = SimpleNamespace(connect=1, initialize=2, list=3, call=4, call_max=5, shutdown=6)
SPECS = (
    UpstreamSpec(name="c", kind="stdio", command=(sys.executable,)),
    UpstreamSpec(name="a", kind="http", url="http://127.0.0.1:1/mcp"),
    UpstreamSpec(name="b", kind="sse", url="http://127.0.0.1:1/sse"),
)


async def test_each_kind_of_server_gets_its_upstream_in_the_order_configured():
    upstreams = Upstreams(SPECS, TIMEOUTS, 65_536)
    async with upstreams.opened(lambda *_: None) as opened:
        assert [type(one) for one in opened] == [StdioUpstream, HttpUpstream, SseUpstream]
        assert [one.spec.name for one in opened] == ["c", "a", "b"]
        assert [one.supports(ProtocolEra.MODERN) for one in opened] == [None, None, False]
        timeout_seconds = opened[2]._timeout_seconds
        assert (timeout_seconds.connect, timeout_seconds.initialize, timeout_seconds.list) == (1, 2, 3)
        assert (timeout_seconds.call, timeout_seconds.call_max, timeout_seconds.shutdown) == (4, 5, 6)


async def test_timeouts_of_a_server_replace_those_of_all():
    http = UpstreamSpec(name="a", kind="http", url="http://127.0.0.1:1/mcp", timeouts={"initialize": 120, "call": 3600})
    command = UpstreamSpec(name="c", kind="stdio", command=(sys.executable,), timeouts={"list": 70})
    async with Upstreams([http, command], TIMEOUTS, 65_536).opened(lambda *_: None) as opened:
        of_url, of_command = opened[0].place.timeout_seconds, opened[1]._timeout_seconds
    assert (of_url.initialize, of_url.list, of_url.call, of_url.call_max) == (120, 3, 3600, 3600)
    assert (of_command.initialize, of_command.list, of_command.call, of_command.call_max) == (2, 70, 4, 5)
