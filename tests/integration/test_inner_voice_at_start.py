"""What a start loads of the inner voice: nothing behind a closed gate, and no library before the first question."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_START = """
import asyncio, json, sys
from riglm.adapters.configuration.loading import Options, load
from riglm.composition.container import build
from riglm.composition.lifespan import lifespan

async def main():
    configuration = load(Options(command=[sys.executable, "-c", ""]))
    async with lifespan(build(configuration.settings, configuration)):
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
        assert own == {f"riglm.application.knowledge.{name}" for name in ("definition", "errors")}
        assert "blake3" not in loaded
    else:
        assert "riglm.application.knowledge.inner_voice" in own
