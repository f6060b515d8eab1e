"""What the how-to on knowledge tells to type works as it says."""

import os
import re
import shlex
import subprocess
from pathlib import Path

from tests.preloaded import riglm_command

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "knowledge.md"


def test_the_example_of_the_how_to_imports_and_finds(tmp_path: Path):
    [script] = re.findall(r"^```sh\n(.*?)^```$", HOW_TO.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    [expected] = re.findall(r"^```text\n(.*?)\nscore ", HOW_TO.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    program = tmp_path / "riglm"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(riglm_command())} "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        ["sh", "-eu", "-c", script],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{expected}\n")
    for observation in ("Likes green tea", "Has a cat named Miso"):
        assert observation in done.stdout
