"""The configuration files that riglm is started with on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from riglm.domain.schemas.settings import Settings


def files_in_use(config: Path | None) -> list[Path]:
    """The file that is named, else ./riglm.yaml, else those that `riglm init` made; none when there are none."""
    from riglm.adapters.configuration.loading import FILE_NAME

    if config is not None:
        return [config]
    here = Path(FILE_NAME)
    return [here] if here.is_file() else [file for _, file in installed()]


def settings_in_use(config: Path | None) -> "Settings":
    """The settings that the first of these files makes, for a command that looks at what was recorded."""
    from riglm.cli.measuring import read_settings

    files = files_in_use(config)
    return read_settings(files[0] if files else None)


def installed() -> list[tuple[str, Path]]:
    """The clients that `riglm init` put riglm in front of, each with its configuration; every file once."""
    from riglm.composition.installing import installations

    found = {one.configuration: one.client for one in installations() if one.configuration.is_file()}
    return [(client, file) for file, client in found.items()]
