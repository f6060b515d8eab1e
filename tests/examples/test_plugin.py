"""The example of a plug-in, installed as packages are: it keeps riglm's contracts, and a configuration picks it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.controlled import controlled
from tests.integration.past import TOOLS, a_past, listing_server

PACKAGE = Path(__file__).parents[2] / "examples" / "plugin-recency"
PATIENCE = 120.0

CONFIGURATION = """
upstream: {{command: {command}, args: {args}}}
predictor:
  kind: recency
  options: {{half_life: {half_life}}}
embedder:
  provider: words
  options: {{dimensions: {dimensions}}}
"""


def run(*command: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=PATIENCE, check=False, **options
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A directory with the package in it."""
    target = tmp_path_factory.mktemp("plugin") / "packages"
    words = ("install", "--quiet", "--no-deps", "--no-build-isolation", "--target", str(target), str(PACKAGE))
    done = run("-m", "pip", *words, cwd=target.parent)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture
def with_it(installed, monkeypatch):
    """Programs that are started find the package."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])]))


def configured(folder: Path, half_life: float, dimensions: int = 128) -> str:
    command, *args = listing_server(folder / "tools.json")
    return CONFIGURATION.format(command=command, args=args, half_life=half_life, dimensions=dimensions)


@pytest.mark.usefixtures("with_it")
def test_its_own_tests_which_are_riglms_contracts_pass(tmp_path):
    done = run(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tmp_path), str(PACKAGE)
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.usefixtures("with_it")
def test_its_options_are_checked_before_riglm_starts(tmp_path):
    (tmp_path / "riglm.yaml").write_text(configured(tmp_path, half_life=-1, dimensions=0))
    done = run("-m", "riglm", "config", "check", "--config", str(tmp_path / "riglm.yaml"))
    assert done.returncode == 2
    assert "half_life is a number of seconds above 0" in done.stderr
    assert "dimensions is a number above 0" in done.stderr


@pytest.mark.usefixtures("with_it")
async def test_a_riglm_whose_configuration_names_it_predicts_by_it(tmp_path):
    file = configured(tmp_path, half_life=7_200)
    not_static = {
        "EMBEDDER__PROVIDER": "",
        "FILTERING__META_TOOLS__INDEX_STATUS": "true",
        "FILTERING__PINNED": "index_status,set_context",
    }
    with controlled(tmp_path, past=a_past(time.time()), configuration=file, settings=not_static) as riglm:
        async with riglm.client() as client:
            await client.list_tools()
            await client.call_tool("set_context", {"context": "whatever comes"})  # waits for what is to be loaded
            status = json.loads((await client.call_tool("index_status", {})).content[0].text)
            [session] = [each for each in riglm.ask("GET", "/sessions").json["items"] if each["ended_at"] is None]
            told = riglm.ask("GET", f"/predictions/{session['id']}").json
    assert status["embeddings"]["actual_model"] == "riglm-recency/words-128"
    assert told["predictor"] == "recency"
    assert "recency" in told["signals"]
    assert told["tools"][0]["tool"] in TOOLS[:4]  # the latest session of the past used these
    assert told["tools"][0]["score"] > told["tools"][-1]["score"]
