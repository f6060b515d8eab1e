"""What a start loads of the inner voice: nothing behind a closed gate, and no library before the tool is listed."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from riglm.adapters.analytics.knowledge import SqlKnowledge
from riglm.application.knowledge.definition import NAME
from tests.integration.live import FILE, PATIENCE, visibility

_START = """
import asyncio, json, sys
from riglm.adapters.configuration.loading import Options, load
from riglm.adapters.mcp.upstream.upstreams import Upstreams
from riglm.container import Container
from riglm.lifespan import lifespan

async def main():
    configuration = load(Options(command=[sys.executable, "-c", ""]))
    settings = configuration.settings
    upstreams = Upstreams(settings.upstream_specs(), settings.timeouts, settings.limits.message_bytes)
    async with lifespan(Container(settings=settings, configuration=configuration), upstreams):
        pass

asyncio.run(main())
print(json.dumps([name for name in sys.modules if "knowledge" in name or name in ("blake3", "numpy", "sqlalchemy")]))
"""


@pytest.mark.parametrize("is_on", [False, True], ids=["closed", "open"])
def test_a_start_loads_no_more_than_it_needs(tmp_path: Path, is_on: bool):
    env = {**os.environ, "RIGLM_DATA_DIR": str(tmp_path), "SURR_ENABLE_INNER_VOICE": str(int(is_on))}
    env["RIGLM_STORAGE__KIND"] = "memory"
    done = subprocess.run(
        [sys.executable, "-c", _START], env=env, capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path
    )
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert "numpy" not in loaded
    assert not any(name.startswith("riglm.adapters.analytics.knowledge") for name in loaded)
    own = {name for name in loaded if name.startswith("riglm.application.knowledge.")}
    if not is_on:
        assert own == {"riglm.application.knowledge.definition"}
        assert "blake3" not in loaded
    else:
        assert "riglm.application.knowledge.inner_voice" in own


async def test_the_first_list_with_the_tool_has_it_made_ready_for_the_first_question(tmp_path: Path, monkeypatch):
    asked = threading.Event()

    nearest = SqlKnowledge.nearest

    def watched(store: SqlKnowledge, *given: Any) -> Any:
        asked.set()
        return nearest(store, *given)

    monkeypatch.setattr(SqlKnowledge, "nearest", watched)
    async with visibility(tmp_path, FILE + "knowledge: {{enabled: true}}\n") as stage:
        client = await stage.client()
        assert not asked.is_set()
        assert NAME in await client.listed()
        assert await asyncio.to_thread(asked.wait, PATIENCE)
