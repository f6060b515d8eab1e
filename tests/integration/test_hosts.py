"""What real hosts load through riglm after `riglm init` and `riglm enforce`."""

from pathlib import Path

import pytest
from benchmarks.hosts.measuring import learn, measured
from benchmarks.hosts.rows import HOSTS

from tests import npm

pytestmark = pytest.mark.timeout(900)  # the first run installs the programs
ROWS = [host for host in HOSTS if host.title in {"Claude Code, ENABLE_TOOL_SEARCH=false", "Codex, gpt-5.5"}]


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("learned")
    learn(directory)
    return directory


@pytest.mark.parametrize("host", ROWS, ids=lambda host: host.title)
def test_a_host_that_defers_or_loads_everything_loads_what_was_learned(host, learned, tmp_path):
    row = measured(host, npm.installed(host.package, host.version), tmp_path, learned)
    assert row.is_right, row
    assert row.direct in {0, 60}
