"""The model process: shared or private, and what happens when it, its client or the one that started it fails."""

import logging
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest

from riglm.adapters.embedding.fastembed import BUNDLED_MODEL
from riglm.adapters.embedding.model_client import FastembedEmbedder
from riglm.domain.schemas.section import EmbedderSettings
from riglm.ports.embedder import EmbedderUnavailableError
from tests.started import freeze
from tests.waiting import WAIT_SECONDS, wait_until

pytestmark = pytest.mark.timeout(120)

TEXTS = [f"Lists the issues of project {each}" for each in range(16)]
QUICK_MODEL = """
import sys
if "riglm.adapters.embedding.model_server" in sys.orig_argv:
    import hashlib
    import numpy as np
    from riglm.adapters.embedding import fastembed
    from riglm.adapters.embedding.fastembed import LoadedModel

    class Engine:
        def embed(self, texts, batch_size):
            return [np.frombuffer(hashlib.shake_256(text.encode()).digest(384), np.uint8) + 1.0 for text in texts]

    fastembed._load_bundled_model = lambda: LoadedModel(fastembed.BUNDLED_MODEL, fastembed.REVISION, Engine())
    embed = LoadedModel.embed
"""
"""Each Python process that is started runs this first: the model process has a model that is loaded at once."""

LOADED_LATE = """
import time
load = fastembed._load_bundled_model
fastembed._load_bundled_model = lambda: time.sleep(3) or load()
"""
PATIENT = {"deadline": WAIT_SECONDS, "start_deadline": WAIT_SECONDS, "idle": WAIT_SECONDS}


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory for sockets, short enough for their paths; what serves there is killed after the test."""
    with tempfile.TemporaryDirectory() as directory:
        monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
        yield Path(directory) / "riglm"
        for server in servers(Path(directory)):
            server.kill()


def servers(directory: Path) -> list[psutil.Process]:
    """The model processes whose socket or models are below a directory."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        command = process.info["cmdline"] or []
        is_running = process.info["status"] != psutil.STATUS_ZOMBIE
        if "riglm.adapters.embedding.model_server" in command and is_running:
            found += [process] * any(word.startswith(str(directory)) for word in command)
    return found


def only_server(directory: Path) -> psutil.Process:
    [server] = servers(directory)
    return server


def sharing(place: Path, **options: float) -> FastembedEmbedder:
    settings = EmbedderSettings(directory=str(place.parent / "models"), **PATIENT | options)
    return FastembedEmbedder(BUNDLED_MODEL, settings, first_delay=0.01)


def private(directory: Path, first_delay: float = 0.01, **options: float) -> FastembedEmbedder:
    settings = EmbedderSettings(directory=str(directory), shared=False, **PATIENT | options)
    return FastembedEmbedder(BUNDLED_MODEL, settings, first_delay=first_delay)


@pytest.fixture(autouse=True)
def run_in_process(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have the model process run a program first; `embed` is the method of the model."""
    site = tmp_path_factory.mktemp("site")
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)

    def prepared(program: str) -> None:
        (site / "sitecustomize.py").write_text(QUICK_MODEL + textwrap.indent(program, "    "))

    prepared("")
    return prepared


@pytest.fixture
def revived() -> Iterator[threading.Event]:
    """Set once a model can be used again."""
    event = threading.Event()

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() == "the model can be used again":
                event.set()

    handler, log = Watch(), logging.getLogger("riglm.embedder")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield event
    log.removeHandler(handler)
    log.setLevel(level)


def test_shared_process_serves_embedders_that_start_at_once(place: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        embedders = [sharing(place) for _ in range(4)]
        for each in pool.map(lambda embedder: embedder.__enter__(), embedders):
            assert each.status().status == "ready"
        first, *others = pool.map(lambda embedder: embedder.embed(TEXTS), embedders)
        assert all(np.array_equal(rows, first) for rows in others)
        only_server(place)
        for each in embedders:
            each.__exit__(None, None, None)


def test_shared_process_outlives_the_one_that_started_it_and_holds_none_of_its_pipes(place: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from riglm.adapters.embedding.model_client import FastembedEmbedder
from riglm.domain.schemas.section import EmbedderSettings
settings = EmbedderSettings(directory=str(Path(sys.argv[1]).parent / "models"), idle={WAIT_SECONDS})
with FastembedEmbedder({BUNDLED_MODEL!r}, settings) as embedder:
    print(embedder.embed(["Read a file"])[0][0])
"""
    started = subprocess.run(  # returns once all that holds its output has closed it
        [sys.executable, "-c", program, place], capture_output=True, text=True, check=True, timeout=WAIT_SECONDS
    )
    server = only_server(place)
    with sharing(place) as embedder:
        assert str(embedder.embed(["Read a file"])[0][0]) == started.stdout.strip()
        assert only_server(place) == server
    assert server.is_running()


def test_process_gets_no_credentials_from_the_one_that_starts_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ghp_canary")
    with sharing(place):
        environment = only_server(place).environ()
    assert environment["PATH"] == os.environ["PATH"]
    assert "ghp_canary" not in environment.values()


def test_idle_process_exits_and_the_next_request_starts_another(place: Path) -> None:
    with sharing(place, idle=1) as embedder:
        before = embedder.embed(["Read a file"])
        for server in servers(place):
            server.wait(WAIT_SECONDS)
        assert [each.name for each in place.iterdir()] == ["lock"]
        assert np.array_equal(embedder.embed(["Read a file"]), before)
        assert embedder.status().status == "ready"


def test_request_is_repeated_when_the_process_is_killed_meanwhile(
    place: Path, run_in_process: Callable[[str], None]
) -> None:
    run_in_process("LoadedModel.embed = lambda self, text: [embed(self, text) for _ in range(100)][0]\n")
    with sharing(place) as embedder, ThreadPoolExecutor(1) as pool:
        expected = embedder.embed(TEXTS)
        killed = only_server(place)
        asked = pool.submit(embedder.embed, TEXTS * 16)
        while killed.cpu_percent(0.01) == 0.0:
            assert not asked.done()
        killed.kill()
        assert np.array_equal(asked.result(WAIT_SECONDS), np.tile(expected, (16, 1)))
        assert only_server(place).pid != killed.pid


def test_shared_process_that_does_not_answer_is_replaced(place: Path) -> None:
    with sharing(place) as embedder, sharing(place, deadline=0.5) as hasty:
        before = embedder.embed(["Read a file"])
        hanging = only_server(place)
        freeze(hanging)
        with pytest.raises(EmbedderUnavailableError, match="did not answer"):
            hasty.embed(["Read a file"])
        with sharing(place) as another:
            assert np.array_equal(another.embed(["Read a file"]), before)
        hanging.resume()
        assert np.array_equal(embedder.embed(["Read a file"]), before)
    hanging.wait(WAIT_SECONDS)  # its socket is another process's, and its last client has left


@pytest.mark.parametrize("obstacle", ["open to others", "a file", "too long a path"])
def test_process_is_private_where_its_socket_cannot_be(
    place: Path, obstacle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if obstacle == "open to others":
        place.mkdir(mode=0o755)
        place.chmod(0o755)
    elif obstacle == "a file":
        place.touch()
    else:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(place / ("x" * 120)))
    with sharing(place) as embedder:
        assert embedder.embed(["Read a file"]).shape == (1, 384)
    assert servers(place) == []


def test_text_that_ends_the_process_again_and_again_harms_no_other(
    tmp_path: Path, run_in_process: Callable[[str], None], revived: threading.Event
) -> None:
    run_in_process(
        "import os\nLoadedModel.embed = lambda self, text: os._exit(9) if text == 'poison' else embed(self, text)\n"
    )
    with private(tmp_path) as embedder:
        before = embedder.embed(["Read a file"])
        with pytest.raises(EmbedderUnavailableError, match="disconnected"):
            embedder.embed(["Read a file", "poison"])
        assert revived.wait(WAIT_SECONDS)
        assert np.array_equal(embedder.embed(["Read a file"]), before)


def test_text_that_the_model_refuses_leaves_the_process_alone(
    tmp_path: Path, run_in_process: Callable[[str], None]
) -> None:
    run_in_process("LoadedModel.embed = lambda self, text: int(text) if text == 'poison' else embed(self, text)\n")
    with private(tmp_path) as embedder:
        server = only_server(tmp_path)
        with pytest.raises(EmbedderUnavailableError, match="refused a text: ValueError"):
            embedder.embed(["poison", "Read a file"])
        assert embedder.embed(["Read a file"]).shape == (1, 384)
        assert only_server(tmp_path) == server


def test_library_that_hangs_ends_with_its_process(
    tmp_path: Path, run_in_process: Callable[[str], None], revived: threading.Event
) -> None:
    run_in_process(
        "import time\n"
        "LoadedModel.embed = lambda self, text: time.sleep(99) if text == 'poison' else embed(self, text)\n"
    )
    with private(tmp_path, deadline=0.5, idle=2) as embedder:
        hanging = only_server(tmp_path)
        with pytest.raises(EmbedderUnavailableError, match="did not answer"):
            embedder.embed(["poison"])
        assert revived.wait(WAIT_SECONDS)
        hanging.wait(WAIT_SECONDS)


def test_process_that_cannot_load_in_time_does_not_hold_up_the_start(
    tmp_path: Path, run_in_process: Callable[[str], None]
) -> None:
    run_in_process(LOADED_LATE)
    with private(tmp_path, start_deadline=0.001, first_delay=60) as embedder:
        assert embedder.status().status == "unavailable"
        with pytest.raises(EmbedderUnavailableError, match="did not answer"):
            embedder.embed(["Read a file"])


def test_closing_ends_a_request_that_hangs(tmp_path: Path) -> None:
    embedder = private(tmp_path)
    embedder.__enter__()
    server = only_server(tmp_path)
    freeze(server)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(embedder.embed, ["Read a file"])
        embedder.__exit__(None, None, None)
        with pytest.raises(EmbedderUnavailableError):
            asked.result(WAIT_SECONDS)
    server.resume()
    server.wait(WAIT_SECONDS)
    with pytest.raises(EmbedderUnavailableError, match="not open"):
        embedder.embed(["Read a file"])


def test_private_process_ends_with_its_client_even_when_that_is_killed(tmp_path: Path) -> None:
    program = f"""
import os, signal, sys
from riglm.adapters.embedding.model_client import FastembedEmbedder
from riglm.domain.schemas.section import EmbedderSettings
embedder = FastembedEmbedder({BUNDLED_MODEL!r}, EmbedderSettings(directory=sys.argv[1], shared=False)).__enter__()
assert embedder.status().status == "ready"
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", program, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    wait_until(lambda: not servers(tmp_path), "the process ends")


def test_output_of_libraries_does_not_reach_riglm(
    tmp_path: Path, run_in_process: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    run_in_process(
        "import os, sys\n"
        "def noisy(self, text):\n"
        "    print('noise' * 100, flush=True)\n"
        "    print('noise' * 100, file=sys.stderr, flush=True)\n"
        "    os.write(0, b'noise')\n"
        "    os.write(1, b'noise')\n"
        "    return embed(self, text)\n"
        "LoadedModel.embed = noisy\n"
    )
    with private(tmp_path) as embedder:
        assert embedder.embed(["Read a file", "Write a file"]).shape == (2, 384)
    assert capfd.readouterr() == ("", "")


def test_module_of_the_users_directory_does_not_replace_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit('wrong module')")
    monkeypatch.chdir(tmp_path)
    with private(tmp_path) as embedder:
        assert embedder.status().status == "ready"
