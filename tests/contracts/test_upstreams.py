"""Every upstream, held to the same contract in front of real servers."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from riglm.adapters.mcp.upstream.upstreams import Upstreams
from riglm.domain.schemas.section import TimeoutSettings
from riglm.domain.upstream import ProcessSharing, UpstreamSpec
from riglm.ports.upstream import UpstreamPort
from tests.contracts.upstream_contract import UpstreamContract, within

SERVER = (sys.executable, str(Path(__file__).parents[1] / "interaction" / "servers" / "scripted.py"))


@asynccontextmanager
async def opened(spec: UpstreamSpec) -> AsyncIterator[UpstreamPort]:
    async with Upstreams([spec], TimeoutSettings(), 1 << 20).opened(lambda *_: None) as [upstream]:
        yield upstream
        await within(upstream.close())
    assert len(asyncio.all_tasks()) == 1, "a closed upstream leaves no task"


def on_pipes(sharing: ProcessSharing, *flags: str, max_processes: int = 32) -> UpstreamSpec:
    return UpstreamSpec(
        name="scripted", kind="stdio", command=(*SERVER, *flags), sharing=sharing, max_processes=max_processes
    )


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    """Where a server listens that the tests share."""
    command = [*SERVER, "--transport", "http", "--lifetime", "3600"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{json.loads(server.stdout.readline())['port']}"
        server.kill()


def over_http(kind: str, url: str, sharing: ProcessSharing = "auto") -> UpstreamSpec:
    return UpstreamSpec(name="scripted", kind=kind, url=url, sharing=sharing)  # type: ignore[arg-type]


class TestStdioUpstream(UpstreamContract):
    @pytest.fixture
    async def upstream(self) -> AsyncIterator[UpstreamPort]:
        async with opened(on_pipes("auto")) as upstream:
            yield upstream


class TestStdioUpstreamWithASharedProcess(UpstreamContract):
    @pytest.fixture
    async def upstream(self) -> AsyncIterator[UpstreamPort]:
        async with opened(on_pipes("shared")) as upstream:
            yield upstream


class TestStdioUpstreamWithMoreClientsThanProcesses(UpstreamContract):
    @pytest.fixture
    async def upstream(self) -> AsyncIterator[UpstreamPort]:
        async with opened(on_pipes("auto", max_processes=1)) as upstream:
            yield upstream


class TestStdioUpstreamOfTheHandshakeEraAlone(UpstreamContract):
    @pytest.fixture
    async def upstream(self) -> AsyncIterator[UpstreamPort]:
        async with opened(on_pipes("session", "--eras", "handshake")) as upstream:
            yield upstream


class TestHttpUpstream(UpstreamContract):
    @pytest.fixture
    async def upstream(self, origin: str) -> AsyncIterator[UpstreamPort]:
        async with opened(over_http("http", f"{origin}/mcp")) as upstream:
            yield upstream


class TestSseUpstream(UpstreamContract):
    @pytest.fixture
    async def upstream(self, origin: str) -> AsyncIterator[UpstreamPort]:
        async with opened(over_http("sse", f"{origin}/sse")) as upstream:
            yield upstream


class TestSseUpstreamWithASharedStream(UpstreamContract):
    @pytest.fixture
    async def upstream(self, origin: str) -> AsyncIterator[UpstreamPort]:
        async with opened(over_http("sse", f"{origin}/sse", "shared")) as upstream:
            yield upstream
