"""The site as `make docs` builds it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.documents.page import ROOT

_BUILDS = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(ROOT / "mkdocs.yml")]


def built(directory: Path) -> Path:
    """The directory, with the site in it; AssertionError says what a strict build finds wrong."""
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [*_BUILDS, "--site-dir", str(directory)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return directory
