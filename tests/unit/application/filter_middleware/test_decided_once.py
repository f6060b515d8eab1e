"""A tool call is parsed, assigned to a session and permitted once, in both eras, for one and for several servers."""

import asyncio
from collections import Counter

import pytest

from riglm.application.filter_middleware.middleware import FilterMiddleware
from riglm.application.sessions.registry import SessionRegistry
from riglm.domain import request_params
from tests.unit.application.filter_middleware import test_conversation, test_modern

KEYED = b'{"io.modelcontextprotocol/session":"s"}'


@pytest.fixture
def counted(monkeypatch):
    """How often a request was parsed, assigned to a session and permitted."""
    counts = Counter()

    def count(owner, name, label):
        original = getattr(owner, name)

        def counting(*args, **more):
            counts[label] += 1
            return original(*args, **more)

        monkeypatch.setattr(owner, name, counting)

    count(request_params, "_parse", "parsed")
    count(SessionRegistry, "of_request", "session")
    count(SessionRegistry, "of_call", "session")
    count(FilterMiddleware, "_permits", "permission")
    return counts


async def test_one_modern_server(counted):
    stage = test_modern.Stage()
    stage.call(1, "a")
    assert len(stage.link.of("tools/call")) == 1
    assert counted == {"parsed": 1, "session": 1, "permission": 1}


async def test_several_modern_servers(counted):
    stage = test_modern.Many("prefix", "read")
    stage.send(1, "tools/list")
    await asyncio.sleep(0.01)
    counted.clear()
    stage.call(2, "one__read")
    await asyncio.sleep(0.01)
    assert len(stage.reached) == 1
    assert counted == {"parsed": 1, "session": 1, "permission": 1}
    await stage.close()


async def test_one_handshake_server(counted):
    stage = test_conversation.Stage()
    stage.call(1, "a", meta=KEYED)
    assert len(stage.link.of("tools/call")) == 1
    assert counted == {"parsed": 1, "session": 1, "permission": 1}
    await stage.conversation.close()
