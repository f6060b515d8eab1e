"""What is in force as far as the store could be read, and who is told."""

import asyncio

import pytest

from riglm.application.filtering.active_rules import Overrides
from riglm.application.worker import Worker
from riglm.domain.errors import AnalyticsUnavailableError
from tests.records import an_override
from tests.stores.memory import InMemoryAnalytics


class Store(InMemoryAnalytics):
    """Away when it is told to be."""

    away = False

    def list_overrides(self):
        if self.away:
            raise AnalyticsUnavailableError("the disk is gone")
        return super().list_overrides()


class Stage:
    """Overrides over a store, and how often somebody was told of others."""

    def __init__(self, worker):
        self.now = 1000.0
        self.store = Store()
        self.told = 0
        self.overrides = Overrides(worker, lambda: self.store, clock=lambda: self.now)
        self.overrides.when_changed(self.notify)
        self.changed = asyncio.Event()

    def notify(self):
        self.told += 1
        self.changed.set()

    async def tools(self):
        """The tools with overrides in force once the store was read."""
        await self.overrides.refresh()
        return [each.tool for each in self.overrides.in_force()]


@pytest.fixture
async def stage():
    with Worker() as worker:
        yield Stage(worker)


async def test_the_clock_ends_what_expires_and_that_is_told(stage):
    stage.store.put_override(an_override(tool="read", expires_at=1500.0))
    assert await stage.tools() == ["read"]
    stage.now = 1500.0
    assert (await stage.tools(), stage.told) == ([], 2)


async def test_a_store_that_is_away_leaves_what_was_read_last_until_it_expires(stage, caplog):
    stage.store.put_override(an_override(tool="read"))
    stage.store.put_override(an_override(tool="write", expires_at=1500.0))
    assert await stage.tools() == ["read", "write"]
    stage.store.away = True
    assert await stage.tools() == ["read", "write"]
    stage.now = 1500.0
    assert await stage.tools() == ["read"]
    assert caplog.text.count("overrides could not be read") == 1
    stage.store.away = False
    stage.store.put_override(an_override(tool="list", created_at=1600.0))
    assert await stage.tools() == ["read", "list"]
