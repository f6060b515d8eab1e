import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

from riglm.adapters.mcp.upstream import channel_link
from tests.unit.adapters.upstream.actors import Ears, Wires


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Every async test in this package runs on the loop that serves; those of `wire` run on both."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def _restart_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_link, "_INITIAL_BACKOFF", 0.001)


@pytest.fixture
def wires() -> Wires:
    return Wires()


@pytest.fixture
def ears() -> Ears:
    return Ears()
