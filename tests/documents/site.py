"""The site as `make docs` builds it."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents.page import ROOT

_BUILDS = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(ROOT / "mkdocs.yml")]


def built(places: pytest.TempPathFactory) -> Path:
    """The directory of the site, built once for all workers; AssertionError says what a strict build finds wrong."""
    own = places.getbasetemp()
    common = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    site, ready = common / "site", common / "site.ready"
    with (common / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            _build(site)
            ready.touch()
    return site


def _build(directory: Path) -> None:
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
