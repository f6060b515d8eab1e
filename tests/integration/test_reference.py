"""The documents that are made from code are current."""

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_reference_of_the_configuration_is_current() -> None:
    script = DOCS / "reference" / "generate.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_reference_of_the_commands_is_current() -> None:
    script = DOCS / "reference" / "generate_commands.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
