"""What real hosts load through riglm after `riglm init` and `riglm enforce`."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.hosts.measuring import end_processes_of, learn, measured
from benchmarks.hosts.rows import HOSTS

from tests import npm

pytestmark = [
    pytest.mark.timeout(900),  # the first run installs the programs
    pytest.mark.usefixtures("riglm_is_forked"),
]
TITLES = {"Codex, gpt-5.5", "Codex, gpt-5.6-sol"}
ROWS = [host for host in HOSTS if host.title in TITLES]


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("learned")
    learn(directory)
    return directory


@pytest.mark.parametrize("host", ROWS, ids=lambda host: host.title)
def test_a_host_that_defers_loads_everything_or_runs_programs_loads_what_was_learned(host, learned, tmp_path):
    row = measured(host, npm.installed(host.package, host.version), tmp_path, learned)
    assert row.is_right, row
    assert row.direct in {0, 60}


def test_a_process_that_left_the_group_of_its_host_is_ended_with_it(tmp_path):
    environment = {**os.environ, "HOME": str(tmp_path)}
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, env=environment, start_new_session=True, stdin=subprocess.PIPE) as left:
        end_processes_of(tmp_path)
        assert left.wait(60) == -signal.SIGKILL
