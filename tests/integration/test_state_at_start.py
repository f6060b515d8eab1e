"""What `riglm serve` says at its start of the state that it shares."""

import os
import subprocess
import sys
from pathlib import Path

_WITHOUT_CLIENT = "import sys; sys.modules['redis'] = None; from riglm.cli.entry import main; main()"


def test_a_missing_client_library_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WITHOUT_CLIENT, "serve", "--port", "0", "--url", "http://127.0.0.1:9/mcp"]
    env = {**os.environ, "RIGLM_DATA_DIR": str(tmp_path), "RIGLM_STATE__URL": "redis://127.0.0.1:9/0"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "riglm: state.kind: the client of Redis is not installed — fix: pip install 'riglm[redis]'" in done.stderr
