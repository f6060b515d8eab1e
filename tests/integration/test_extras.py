"""What works without the optional dependencies."""

import subprocess
import sys

BLOCKED = ("opentelemetry.exporter", "opentelemetry.sdk", "psycopg", "pytest", "redis")
"""The packages of riglm's extras."""

NEEDS_EXTRA = {
    "riglm.adapters.analytics.postgresql",
    "riglm.adapters.state",  # with its module
    "riglm.adapters.telemetry.tracing",
    "riglm.testing.embedder",
    "riglm.testing.predictor",
}

BLOCK = f"""
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.startswith({BLOCKED!r}):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Block())
"""

IMPORT_ALL = """
import importlib, pkgutil
import riglm
for module in pkgutil.walk_packages(riglm.__path__, "riglm."):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError:
        print(module.name)
"""

RECORD = """
from riglm import ToolSelector
tools = [{"name": f"tool_{number}"} for number in range(30)]
with ToolSelector(tools, store="agent.db", embedder="static") as selector:
    session = selector.session()
    session.select("anything")
    session.used("tool_7", seconds=0.25)
from riglm.adapters.analytics.sql import SqlAnalytics
with SqlAnalytics("sqlite:///agent.db") as store:
    print(store.list_invocations(store.list_sessions()[0].session.id)[0].tool)
"""


def test_only_the_adapters_of_extras_need_optional_dependencies_and_recording_works_without(tmp_path):
    script = [sys.executable, "-c", BLOCK + IMPORT_ALL + RECORD]
    done = subprocess.run(script, capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path)
    *modules, recorded = done.stdout.split()
    assert set(modules) == NEEDS_EXTRA
    assert recorded == "tool_7"
