import asyncio
from collections.abc import Callable, Mapping

import uvloop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Every async test in this package runs on the loop that serves; those of `wire` run on both."""
    return {"uvloop": uvloop.new_event_loop}
