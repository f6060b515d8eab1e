"""What the benchmarks install for themselves, and where it is kept between two runs."""

import os
import shutil
import subprocess
import venv
from collections.abc import Callable
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]


def import_path() -> str:
    """The PYTHONPATH of programs that run modules of this checkout wherever they are started."""
    return os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH"))))


class InstallationFailed(Exception):
    """A tool that a benchmark needs could not be installed; the message is the installer's own."""


def installation(name: str, pins: str, install: Callable[[Path], None]) -> Path:
    """A directory that `install` has filled for these pins: once, and anew when they change.

    It lies under RIGLM_CACHE if that is set, else under .cache of the checkout.

    Raises:
        InstallationFailed: an installer failed; nothing half-done is taken for whole later.
    """
    directory = Path(os.environ.get("RIGLM_CACHE") or CHECKOUT / ".cache").absolute() / name
    stamp = directory / f"ready-{pins}"
    if not stamp.exists():
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        install(directory)
        stamp.touch()
    return directory


def make_environment(directory: Path, *requirements: str) -> Path:
    """Make a virtual environment that holds these requirements; its interpreter."""
    venv.create(directory, with_pip=True)
    python = directory / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements)
    return python


def run(*command: str | Path, directory: Path | None = None, environment: dict[str, str] | None = None) -> None:
    """Run an installer to its end.

    Raises:
        InstallationFailed: it could not be started, or it exited with an error.
    """
    words = [str(word) for word in command]
    try:
        subprocess.run(words, check=True, capture_output=True, text=True, cwd=directory, env=environment)
    except subprocess.CalledProcessError as error:
        raise InstallationFailed(f"{' '.join(words)}\n{error.stdout}{error.stderr}") from error
    except OSError as error:
        raise InstallationFailed(f"{' '.join(words)}: {error}") from error
