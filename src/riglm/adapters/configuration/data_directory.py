"""Where riglm keeps what it records."""

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


def configuration_directory(environment: Mapping[str, str]) -> Path:
    """Where `riglm init` keeps its configurations: the user's directory for them, or the one that RIGLM_DATA_DIR names.

    It need not exist.
    """
    named = environment.get(VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_config_dir("riglm", appauthor=False, roaming=True))
