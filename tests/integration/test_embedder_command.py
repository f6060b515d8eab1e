"""`riglm embedder` as users start it."""

import json
import os
import socket
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.preloaded import riglm_command

pytestmark = pytest.mark.timeout(120)


def run(directory: Path, *words: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RIGLM_")}
    own = {"RIGLM_DATA_DIR": str(directory / "data"), "RIGLM_EMBEDDER__DIRECTORY": str(directory / "models")}
    own["RIGLM_EMBEDDER__SHARED"] = "false"
    done = subprocess.run(
        riglm_command("embedder", *words),
        cwd=directory,
        env=inherited | own | environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=90,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_the_status_tells_what_is_configured_and_what_is_at_work(tmp_path: Path) -> None:
    told = json.loads(run(tmp_path, "status", "--json").stdout)
    assert told["embeddings"] == {
        "provider": "fastembed",
        "model": "riglm/all-MiniLM-L6-v2-int8",
        "status": "ready",
        "actual_provider": "fastembed",
        "actual_model": "riglm/all-MiniLM-L6-v2-int8",
        "dimensions": 384,
        "is_fallback_active": False,
        "semantic_quality": "high",
    }
    assert told["identity"].startswith("riglm/all-MiniLM-L6-v2-int8@")
    assert Path(told["bundled_file"]).is_file()
    assert told["directory"] == str(tmp_path / "models")
    assert told["load_ms"] > 0
    assert told["embed_ms"] > 0
    assert not (tmp_path / "models").exists()


def test_the_status_tells_why_another_model_stands_in(tmp_path: Path) -> None:
    told = run(tmp_path, "status", RIGLM_EMBEDDER__MODEL="BAAI/bge-small-en-v1.5")
    assert "configured  BAAI/bge-small-en-v1.5 (fastembed)" in told.stdout
    assert "fallback    yes" in told.stdout
    assert "fix: riglm embedder pull BAAI/bge-small-en-v1.5" in told.stdout
    assert told.stderr == ""


def test_a_hub_that_never_answers_is_given_up_in_time(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hub:
        endpoint = f"http://127.0.0.1:{hub.getsockname()[1]}"
        words = ("pull", "BAAI/bge-small-en-v1.5", "--deadline", "4")
        done = run(tmp_path, *words, code=1, HF_ENDPOINT=endpoint)
    assert done.stdout == ""
    assert "Downloading BAAI/bge-small-en-v1.5 into" in done.stderr
    assert "riglm: BAAI/bge-small-en-v1.5: cannot be downloaded: the hub did not give it out within 4 s — fix:" in (
        done.stderr
    )
    commands = [" ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"])]
    assert not [command for command in commands if str(tmp_path) in command]
