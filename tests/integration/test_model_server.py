"""The embedding process that all riglm processes of a user share."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest

from riglm.adapters.embedding.bundled import BUNDLED_MODEL
from riglm.adapters.embedding.fastembed import FastembedEmbedder
from tests.started import freeze
from tests.waiting import WAIT_SECONDS

pytestmark = pytest.mark.timeout(120)

PATIENCE = WAIT_SECONDS
TEXTS = [f"Lists the issues of project {each}" for each in range(16)]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory for the socket, short enough for its path; what serves there is killed after the test."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory) / "run"
        for server in servers(Path(directory)):
            server.kill()
            server.wait(PATIENCE)


def servers(place: Path) -> list[psutil.Process]:
    """The servers whose socket is below a directory."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        command = process.info["cmdline"] or []
        if "riglm.adapters.embedding.worker" in command and command[-1].startswith(str(place)):
            found.append(process)
    return found


def only_server(place: Path) -> psutil.Process:
    [server] = servers(place)
    return server


def sharing(place: Path, **options: float) -> FastembedEmbedder:
    patient = {"deadline": PATIENCE, "start_deadline": PATIENCE, "first_delay": 0.01, "idle": PATIENCE}
    return FastembedEmbedder((BUNDLED_MODEL,), directory=place.parent / "models", shared_in=place, **patient | options)


def test_model_server_is_shared_by_embedders_that_start_at_once(place: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        embedders = [sharing(place) for _ in range(4)]
        for each in pool.map(lambda embedder: embedder.__enter__(), embedders):
            assert each.status().status == "ready"
        first, *others = pool.map(lambda embedder: embedder.embed(TEXTS), embedders)
        assert all(np.array_equal(rows, first) for rows in others)
        assert [each.pid for each in embedders] == [None] * 4
        only_server(place)
        for each in embedders:
            each.__exit__(None, None, None)


def test_model_server_outlives_the_process_that_started_it_and_holds_none_of_its_pipes(place: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from riglm.adapters.embedding.fastembed import FastembedEmbedder
place = Path(sys.argv[1])
models = ({BUNDLED_MODEL!r},)
with FastembedEmbedder(models, directory=place.parent / "models", shared_in=place, idle={PATIENCE}) as embedder:
    print(embedder.embed(["Read a file"])[0][0])
"""
    started = subprocess.run(  # returns once all that holds its output has closed it
        [sys.executable, "-c", program, place], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    server = only_server(place)
    with sharing(place) as embedder:
        assert str(embedder.embed(["Read a file"])[0][0]) == started.stdout.strip()
        assert only_server(place) == server
    assert server.is_running()


def test_model_server_gets_no_credentials_from_the_process_that_starts_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "ghp_canary")
    with sharing(place) as embedder:
        embedder.embed(["Read a file"])
        environment = only_server(place).environ()
    assert environment["PATH"] == os.environ["PATH"]
    assert "ghp_canary" not in environment.values()


def test_model_server_exits_when_idle_and_the_next_request_starts_another(place: Path) -> None:
    with sharing(place, idle=0.1) as embedder:
        before = embedder.embed(["Read a file"])
        for server in servers(place):
            server.wait(PATIENCE)
        assert [each.name for each in place.iterdir()] == ["lock"]
        assert np.array_equal(embedder.embed(["Read a file"]), before)
        assert embedder.status().status == "ready"


def test_model_server_that_is_killed_while_it_embeds_loses_nothing(place: Path) -> None:
    with sharing(place, batch=256) as embedder, ThreadPoolExecutor(1) as pool:
        expected = embedder.embed(TEXTS)
        killed = only_server(place)
        asked = pool.submit(embedder.embed, TEXTS * 16)
        while killed.cpu_percent(0.01) == 0.0:
            assert not asked.done()
        killed.kill()
        assert np.array_equal(asked.result(PATIENCE), np.tile(expected, (16, 1)))
        assert only_server(place).pid != killed.pid


def test_model_server_that_does_not_answer_is_replaced(place: Path) -> None:
    with sharing(place) as embedder, sharing(place, deadline=0.5) as hasty:
        before = embedder.embed(["Read a file"])
        hanging = only_server(place)
        freeze(hanging)
        with pytest.raises(Exception, match="did not answer"):
            hasty.embed(["Read a file"])
        with sharing(place) as another:
            assert np.array_equal(another.embed(["Read a file"]), before)
        hanging.resume()
        assert np.array_equal(embedder.embed(["Read a file"]), before)
    hanging.wait(PATIENCE)  # its socket is another server's, and its last client has left


def test_model_server_that_crashes_again_and_again_gives_way_to_a_process_of_its_own(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.parent.joinpath("sitecustomize.py").write_text(
        "import os, sys\n"
        "from riglm.adapters.embedding.onnx_model import OnnxModel\n"
        "if '-m' in sys.orig_argv and sys.orig_argv[-1].startswith('/'):\n"
        "    OnnxModel.embed = lambda self, text: os._exit(9)\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(place.parent), *sys.path[1:]]))
    with sharing(place) as embedder:
        assert embedder.embed(["Read a file"]).shape == (1, 384)
        assert embedder.pid is not None


@pytest.mark.parametrize("obstacle", ["open to others", "a file", "too long a path"])
def test_model_server_is_not_needed_where_its_socket_cannot_be(place: Path, obstacle: str) -> None:
    if obstacle == "open to others":
        place.mkdir(mode=0o755)
        place.chmod(0o755)
    elif obstacle == "a file":
        place.touch()
    else:
        place = place / ("x" * 120)
    with sharing(place) as embedder:
        assert embedder.embed(["Read a file"]).shape == (1, 384)
        assert psutil.Process(embedder.pid).is_running()
    assert servers(place) == []


def test_models_and_downloads_have_servers_of_their_own(place: Path) -> None:
    with sharing(place), sharing(place) as second:
        (place.parent / "models" / "models--a--b" / "snapshots" / "1").mkdir(parents=True)
        with sharing(place) as third:
            assert np.array_equal(third.embed(["Read a file"]), second.embed(["Read a file"]))
            assert len(servers(place)) == 2


def test_a_query_does_not_wait_for_the_batch_of_another_client(place: Path) -> None:
    with sharing(place, batch=1024) as busy, sharing(place) as asking, ThreadPoolExecutor(1) as pool:
        server = only_server(place)
        batch = pool.submit(busy.embed, [f"{text} {number}" for number in range(20) for text in TEXTS])
        while server.cpu_percent(0.01) == 0.0:
            assert not batch.done()
        for number in range(5):
            asking.embed([f"query {number}"])
        assert not batch.done()
        assert len(batch.result(PATIENCE)) == 20 * len(TEXTS)


def test_model_server_survives_what_is_no_request(place: Path) -> None:
    with sharing(place) as embedder:
        path = next(each for each in place.iterdir() if each.name != "lock")
        for garbage in (b"\xff\xff\xff\xff", b"\x00\x00\x00\x01x", b"\x00"):
            with socket.socket(socket.AF_UNIX) as link:
                link.connect(str(path))
                link.sendall(garbage)
        assert embedder.embed(["Read a file"]).shape == (1, 384)
