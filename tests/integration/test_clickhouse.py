"""A real riglm that sends to a stand-in for ClickHouse, and asks it about times before the retention."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from riglm.adapters.analytics.clickhouse import ClickHouse
from tests.integration.controlled import Controlled, controlled
from tests.integration.past import TOOLS, a_past
from tests.preloaded import riglm_command
from tests.stores.clickhouse import ClickHouseStandIn
from tests.waiting import wait_until_async

DAY_SECONDS = 86_400.0


def calls(riglm: Controlled, since: float) -> int:
    """How many calls the dashboard shows."""
    answer = riglm.ask("GET", f"/stats/series?since={since}")
    assert answer.status == 200, answer
    return sum(bucket["calls"] for bucket in answer.json["buckets"])


def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """A command of riglm that succeeded."""
    command = riglm_command(*words)
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=60)


def stored_calls(store: ClickHouse) -> int:
    return sum(len(each.calls) for each in store.list_proxied_sessions(1_000))


def reported_calls(report: str) -> int:
    """How many calls a report walked again."""
    return json.loads(report)["replayed"]["calls"]


async def test_records_are_sent_asked_for_and_erased(tmp_path: Path):
    now = time.time()
    with ClickHouseStandIn(tmp_path / "clickhouse") as server:
        archive = ClickHouse(server.url, days=0, installation="one", timeout_seconds=30.0)
        settings = {"CLICKHOUSE__URL": server.url, "CLICKHOUSE__DAYS": "0"}
        environment = {**os.environ, "RIGLM_DATA_DIR": str(tmp_path / "data")}
        environment |= {f"RIGLM_{name}": value for name, value in settings.items()}
        report = ("report", "--predictor", "frequency", "--json")
        in_store, year_ago, day_ago = len(TOOLS) + 24, now - 365 * DAY_SECONDS, now - DAY_SECONDS
        with controlled(tmp_path, past=a_past(now - 30 * DAY_SECONDS), settings=settings) as riglm:
            async with riglm.client() as client:
                for tool in TOOLS:
                    await client.call_tool(tool, {})
                with archive as store:
                    await wait_until_async(lambda: stored_calls(store) >= len(TOOLS))
                    assert calls(riglm, year_ago) == in_store
                    assert reported_calls(run(environment, *report).stdout) == in_store
                    store.record_many(a_past(now - 300 * DAY_SECONDS, sessions=10))
                await wait_until_async(lambda: calls(riglm, year_ago) == len(TOOLS) + 40)
            assert calls(riglm, day_ago) == len(TOOLS)
            assert reported_calls(run(environment, *report, "--days", "365").stdout) == len(TOOLS) + 40
            assert reported_calls(run(environment, *report, "--days", "1").stdout) == len(TOOLS)
            server.stop()
            of_store = run(environment, *report, "--days", "365")
            assert reported_calls(of_store.stdout) == in_store
            assert f"ClickHouse at {server.url} is unavailable" in of_store.stderr
            assert calls(riglm, year_ago + 1) == in_store
            server.start()
        erasing = ("db", "forget", "--principal", "", "--yes", "--unseen")
        with pytest.raises(subprocess.CalledProcessError) as refused:
            run(environment | {"RIGLM_CLICKHOUSE__URL": server.url + "?nosuchoption=1"}, *erasing)
        assert f"{in_store} invocations" in refused.value.stdout
        assert "not erased in ClickHouse" in refused.value.stderr
        assert "removed from ClickHouse: 1 session\n" in run(environment, *erasing).stdout
        with archive as store:  # what a different installation sent is kept
            assert stored_calls(store) == 40
            assert store.count_sessions()[1] == 10
