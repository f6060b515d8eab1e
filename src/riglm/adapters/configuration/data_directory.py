"""Where riglm keeps what it records."""

import sys
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "RIGLM_DATA_DIR"
"""The environment variable that names another directory."""


def data_directory(environment: Mapping[str, str]) -> Path:
    """The user's data directory for riglm, or the one that RIGLM_DATA_DIR names; it need not exist."""
    named = environment.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    import platformdirs

    return Path(platformdirs.user_data_dir("riglm", appauthor=False))


def other_data_directories(environment: Mapping[str, str], home: Path, platform: str = sys.platform) -> list[Path]:
    """Return riglm's data directories without RIGLM_DATA_DIR, with the current XDG_DATA_HOME and without it."""
    usual = {
        "win32": Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local"),
        "darwin": home / "Library" / "Application Support",
    }
    xdg = environment.get("XDG_DATA_HOME") if platform != "win32" else None
    bases = [*([Path(xdg)] if xdg else []), usual.get(platform, home / ".local" / "share")]
    return [base / "riglm" for base in bases]


def configuration_directory(environment: Mapping[str, str]) -> Path:
    """Where `riglm init` keeps its configurations: the user's directory for them, or the one that RIGLM_DATA_DIR names.

    It need not exist.
    """
    named = environment.get(VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_config_dir("riglm", appauthor=False, roaming=True))
