"""Where riglm keeps what it records."""

from collections.abc import Mapping
from pathlib import Path

import platformdirs

VARIABLE = "RIGLM_DATA_DIR"
"""The environment variable that names another directory."""


def data_directory(environment: Mapping[str, str]) -> Path:
    """The user's data directory for riglm, or the one that RIGLM_DATA_DIR names; it need not exist."""
    named = environment.get(VARIABLE)
    return Path(named).expanduser() if named else Path(platformdirs.user_data_dir("riglm", appauthor=False))
